// Chat prompts: messages are made plain, then the model's template is rendered.
#include "weft/serve/api/chat_prompt.h"

#include "weft/serve/api/earlier_reasoning.h"

namespace weft::api {
namespace {

using nlohmann::ordered_json;

std::string content_text(const ordered_json& content, size_t index) {
  if (content.is_null()) return {};
  if (content.is_string()) return content.get<std::string>();
  const ApiError wrong(
      400,
      fmt::format("messages[{}].content: write a text or a list of parts of type text; this model reads nothing else",
                  index),
      {}, "messages");
  if (!content.is_array()) throw wrong;
  std::string text;
  for (const ordered_json& part : content) {
    if (!part.is_object()) throw wrong;
    const std::string type = part.value("type", ordered_json()).is_string() ? part["type"].get<std::string>() : "";
    const char* const key = type == "refusal" ? "refusal" : "text";
    const bool is_text = type == "text" || type == "input_text" || type == "output_text" || type == "refusal";
    if (!is_text || !part.contains(key) || !part[key].is_string()) throw wrong;
    if (!text.empty()) text += '\n';
    text += part[key].get<std::string>();
  }
  return text;
}

std::string last_text(const ordered_json& messages) { return messages.back()["content"].get<std::string>(); }

// Templates write the arguments as JSON: an object, not a text that holds one.
void open_arguments(ordered_json& calls, const JsonLimits& limits) {
  for (ordered_json& call : calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    ordered_json& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    try {
      function["arguments"] =
          parse_ordered_json(function["arguments"].get<std::string>(), "the arguments of a tool call", limits);
    } catch (const Error&) {  // the model's own words; the template gets them as they are
    }
  }
}

const ordered_json& function_of(const ordered_json& tool, size_t index) {
  const bool is_function = tool.is_object() && tool.contains("function") && tool["function"].is_object();
  if (!is_function || !tool["function"].contains("name") || !tool["function"]["name"].is_string())
    throw ApiError(400,
                   fmt::format("tools[{}]: write {{\"type\": \"function\", \"function\": {{\"name\": ...}}}}", index),
                   {}, "tools");
  return tool["function"];
}

// Whether there are any. Throws ApiError when they are no list of functions.
bool check_tools(const ordered_json& tools, const ApiLimits& limits) {
  if (tools.is_null()) return false;
  if (!tools.is_array()) throw ApiError(400, "tools: write a list of functions", {}, "tools");
  if (int64_t(tools.size()) > limits.tools)
    throw ApiError(400, fmt::format("tools: there are {}, and {} are allowed", tools.size(), limits.tools), {},
                   "tools");
  for (size_t i = 0; i < tools.size(); ++i) function_of(tools[i], i);
  return !tools.empty();
}

// The tools of which one must be called.
OutputForm calls_of(const ordered_json& tools, const ToolChoice& choice, const ServedModel& model,
                    const ApiLimits& limits) {
  const bool is_named = choice.kind == ToolChoice::Kind::named;
  OutputForm form{.kind = OutputForm::Kind::tool_calls,
                  .tool_format = model.tool_format,
                  .is_parallel = choice.is_parallel && !is_named};
  int64_t bytes = 0;
  for (size_t i = 0; i < tools.size(); ++i) {
    const ordered_json& function = function_of(tools[i], i);
    if (is_named && function["name"] != choice.name) continue;
    const bool has_schema = function.contains("parameters") && function["parameters"].is_object();
    form.choices.push_back(function["name"].get<std::string>());
    form.schemas.push_back(has_schema ? function["parameters"].dump() : R"({"type": "object"})");
    bytes += int64_t(form.schemas.back().size());
  }
  if (form.choices.empty())
    throw ApiError(400, fmt::format("tool_choice: there is no tool {}", choice.name), {}, "tool_choice");
  if (bytes > limits.schema_bytes)
    throw ApiError(400,
                   fmt::format("tools: their schemas have {} bytes and {} are allowed", bytes, limits.schema_bytes),
                   {}, "tools");
  return form;
}

void set_reasoning(const Plan& plan, OutputForm& form) {
  if (plan.reasoning == ReasoningPlace::outside) return;
  form.reasoning_format = plan.model->reasoning_format;
  form.reasoning = plan.reasoning;
}

// A call that a model begins by itself has the form of one of these tools. Where that cannot be said of them, calls
// are read as they come.
std::optional<OutputForm> free_calls_of(const ordered_json& tools, const ToolChoice& choice, const Plan& plan,
                                        const ApiLimits& limits) {
  const ServedModel& model = *plan.model;
  if (!model.constraints) return {};
  try {
    OutputForm form = calls_of(tools, choice, model, limits);
    form.trigger = call_trigger(model.tool_format);
    form.is_whole_answer = tool_family(model.tool_format).is_whole_answer;
    form.may_be_text = form.trigger.empty();
    if (!form.may_be_text) set_reasoning(plan, form);
    model.constraints->make(form);
    return form;
  } catch (const Error&) {
    return {};
  }
}

// The tools' schemas, which say what arguments are that are not written as JSON.
std::shared_ptr<const ToolSchemas> schemas_of(const ordered_json& tools) {
  auto schemas = std::make_shared<ToolSchemas>();
  for (size_t i = 0; i < tools.size(); ++i) {
    const ordered_json& tool = tools[i];
    if (!tool.is_object() || !tool.contains("function") || !tool["function"].is_object()) continue;
    const ordered_json& function = tool["function"];
    if (!function.contains("name") || !function["name"].is_string() || !function.contains("parameters")) continue;
    schemas->emplace(function["name"].get<std::string>(), function["parameters"].dump());
  }
  return schemas;
}

// The answer begins with its content: what the prompt began ends there.
void end_reasoning(Plan& plan, std::string& prompt) {
  const ReasoningFamily& family = reasoning_family(plan.model->reasoning_format);
  if (plan.reasoning == ReasoningPlace::inside)
    prompt += prompt.ends_with('\n') ? fmt::format("\n{}\n\n", family.close) : family.close;
  plan.reasoning = ReasoningPlace::outside;
}

void read_tools(const Conversation& conversation, const ToolChoice& choice, const ApiLimits& limits, Plan& plan,
                std::string& prompt) {
  const ServedModel& model = *plan.model;
  const ordered_json& tools = conversation.tools;
  if (tool_family(model.tool_format).style == CallStyle::tagged) plan.tools = schemas_of(tools);
  plan.one_call = !choice.is_parallel || choice.kind == ToolChoice::Kind::named;
  if (choice.kind == ToolChoice::Kind::automatic) {
    // Whose beginning is not seen has no form.
    if (!plan.form && !conversation.continues_last) plan.form = free_calls_of(tools, choice, plan, limits);
    return;
  }
  OutputForm form = calls_of(tools, choice, model, limits);
  if (!model.constraints) {
    end_reasoning(plan, prompt);
    plan.forced_beginning = forced_beginning(model.tool_format, choice.name);
    return;
  }
  form.has_marker = plan.reasoning != ReasoningPlace::outside;
  set_reasoning(plan, form);
  if (!form.has_marker) plan.forced_beginning = marker_before(model.tool_format);
  plan.form = std::move(form), plan.form_key = "tools";
}

// What is looked for in the answers may be control tokens, which then are shown to the parsers.
void keep_tokens(const std::vector<std::string>& spellings, Plan& plan) {
  for (const std::string& spelling : spellings) {
    if (const auto id = plan.model->tokenizer->find(spelling)) plan.text.kept_special.push_back(*id);
  }
}
void read_calls(Plan& plan) {
  plan.reads_tools = true;
  keep_tokens(tool_markers(plan.model->tool_format), plan);
}

// Of an answer that has begun so.
ReasoningPlace place_behind(ReasoningFormat format, std::string_view begun) {
  const ReasoningFamily& family = reasoning_family(format);
  if (format == ReasoningFormat::none || format == ReasoningFormat::harmony) return ReasoningPlace::outside;
  const size_t open = begun.rfind(family.open), close = begun.rfind(family.close);
  const bool is_open = open != begun.npos && (close == begun.npos || close < open);
  return is_open ? ReasoningPlace::inside : ReasoningPlace::outside;
}

void read_reasoning(const Conversation& conversation, Plan& plan, std::string& prompt) {
  const ReasoningFormat format = plan.model->reasoning_format;
  const bool is_off = conversation.thinking.is_on == false || turn_off_thinking(conversation.template_variables);
  plan.tells_reasoning = conversation.thinking.is_told && format != ReasoningFormat::none;
  plan.reasoning = conversation.continues_last ? place_behind(format, last_text(conversation.messages))
                                               : reasoning_place(format, prompt);
  // Other answers in parts have no place for it.
  if (tool_family(plan.model->tool_format).is_framed && format != ReasoningFormat::harmony)
    plan.reasoning = ReasoningPlace::outside;
  // Of models that always think the template begins it even so.
  if (is_off && plan.reasoning == ReasoningPlace::inside) end_reasoning(plan, prompt);
  if (plan.reasoning != ReasoningPlace::outside)
    keep_tokens({reasoning_family(format).open, reasoning_family(format).close}, plan);
}

void check_continued(const Conversation& conversation, const ToolChoice& choice, const Plan& plan) {
  const auto refuse = [](std::string_view why) {
    throw ApiError(400, fmt::format("messages: the last one cannot be continued: {}", why), {}, "messages");
  };
  const ordered_json& last = conversation.messages.back();
  if (last["role"] != "assistant") refuse("it is not the assistant's");
  if (last.contains("tool_calls")) refuse("it has calls");
  if (choice.kind == ToolChoice::Kind::required || choice.kind == ToolChoice::Kind::named)
    refuse("tool_choice demands a call");
  if (plan.form) refuse("an answer of a given form is demanded, and forms are of whole answers");
  if (tool_family(plan.model->tool_format).is_framed) refuse("this model's answers are in parts with headers");
}

void add_variables(const Conversation& conversation, ReasoningFormat format, ChatInput& input) {
  const ordered_json& own = conversation.template_variables;
  for (auto& [name, value] : thinking_variables(conversation.thinking, format)) {
    if (!own.is_object() || !own.contains(name)) input.variables.emplace_back(name, value);
  }
  if (!own.is_object()) return;
  for (const auto& [name, value] : own.items()) input.variables.emplace_back(name, jinja::Value::from_json(value));
}

// Templates take the arguments of earlier calls as an object, or as its text.
std::string render_calls(const ChatTemplate& chat_template, ChatInput input, ordered_json messages) {
  input.messages = jinja::Value::from_json(messages);
  try {
    return chat_template.render(input);
  } catch (const Error&) {
    bool is_changed = false;
    for (ordered_json& message : messages) {
      if (!message.contains("tool_calls")) continue;
      for (ordered_json& call : message["tool_calls"]) {
        if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
        ordered_json& function = call["function"];
        if (!function.contains("arguments") || !function["arguments"].is_object()) continue;
        function["arguments"] = function["arguments"].dump();
        is_changed = true;
      }
    }
    if (!is_changed) throw;
  }
  input.messages = jinja::Value::from_json(messages);
  return chat_template.render(input);
}

// Some take earlier reasoning as a part of the content; older ones of these families know texts only.
std::string render(const ServedModel& model, const ChatInput& input, const ordered_json& messages) {
  ordered_json with_parts = messages;
  if (reasoning_family(model.reasoning_format).has_blocks) put_reasoning_in_contents(with_parts);
  if (with_parts != messages) {
    try {
      return render_calls(*model.chat_template, input, std::move(with_parts));
    } catch (const Error&) {
    }
  }
  return render_calls(*model.chat_template, input, messages);
}

// Up to where the text of the last message ends, whatever the template writes behind it.
std::string render_continued(const ServedModel& model, ChatInput input, ordered_json messages) {
  constexpr std::string_view kEnd = "weft-goes-on-here";
  input.add_generation_prompt = false;
  messages.back()["content"] = last_text(messages) + std::string(kEnd);
  std::string text = render(model, input, messages);
  const size_t end = text.rfind(kEnd);
  if (end == text.npos)
    throw ApiError(400, "messages: the last one cannot be continued: the chat template leaves its text out", {},
                   "messages");
  text.resize(end);
  return text;
}

void read_end_of_prompt(const JsonView& body, Conversation& conversation) {
  conversation.continues_last = body.boolean_or("continue_final_message", false);
  conversation.asks_for_answer = body.boolean_or("add_generation_prompt", !conversation.continues_last);
  if (conversation.continues_last && conversation.asks_for_answer)
    throw ApiError(400, "continue_final_message excludes add_generation_prompt", {}, "continue_final_message");
}

}  // namespace

Conversation read_conversation(const JsonView& body, std::string_view request, const ApiLimits& limits) {
  ordered_json all = parse_ordered_json(request, "the request", limits.json);
  const auto take = [&](const char* key) { return all.contains(key) ? std::move(all[key]) : ordered_json(); };
  Conversation conversation{.messages = take("messages"),
                            .tools = take("tools"),
                            .template_variables = take("chat_template_kwargs"),
                            .documents = take("documents"),
                            .thinking = read_thinking(body)};
  read_end_of_prompt(body, conversation);
  return conversation;
}

void normalize(ordered_json& messages) {
  if (!messages.is_array() || messages.empty())
    throw ApiError(400, "messages: write a list with at least one message", {}, "messages");
  const JsonLimits limits{.max_bytes = 1 << 20};
  for (size_t i = 0; i < messages.size(); ++i) {
    ordered_json& message = messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      throw ApiError(400, fmt::format("messages[{}]: write an object with a role and a content", i), {}, "messages");
    if (message["role"] == "developer") message["role"] = "system";
    message["content"] = content_text(message.contains("content") ? message["content"] : ordered_json(), i);
    if (!message.contains("tool_calls")) continue;
    if (message["tool_calls"].is_array() && !message["tool_calls"].empty())
      open_arguments(message["tool_calls"], limits);
    else
      message.erase("tool_calls");
  }
}

void plan_chat(Conversation conversation, const ToolChoice& choice, const ApiLimits& limits, Plan& plan) {
  const ServedModel& model = *plan.model;
  if (!model.chat_template)
    throw ApiError(400, fmt::format("{} has no chat template: it continues texts, by /v1/completions", model.name),
                   "no_chat_template", "model");
  name_reasoning(conversation.messages, model.reasoning_format);
  normalize(conversation.messages);
  const bool has_tools = check_tools(conversation.tools, limits);
  const bool offers_tools = has_tools && choice.kind != ToolChoice::Kind::none;
  if (!has_tools && (choice.kind == ToolChoice::Kind::required || choice.kind == ToolChoice::Kind::named))
    throw ApiError(400, "tool_choice demands a call, and there are no tools", {}, "tool_choice");
  if (conversation.continues_last) check_continued(conversation, choice, plan);
  ChatInput input{.messages = {}, .add_generation_prompt = conversation.asks_for_answer};
  if (conversation.documents.is_array()) input.documents = jinja::Value::from_json(conversation.documents);
  if (offers_tools) input.tools = jinja::Value::from_json(conversation.tools);
  add_variables(conversation, model.reasoning_format, input);
  std::string text = conversation.continues_last ? render_continued(model, input, conversation.messages)
                                                 : render(model, input, conversation.messages);
  read_reasoning(conversation, plan, text);
  if (plan.form) set_reasoning(plan, *plan.form);
  const ToolFamily& family = tool_family(model.tool_format);
  // Of answers that are framed, also text is read out of its frame; where another form is asked for, if it has one.
  const bool has_frame = model.reasoning_format == ReasoningFormat::harmony || !plan.form;
  if (offers_tools || (family.is_framed && has_frame)) read_calls(plan);
  if (offers_tools) read_tools(conversation, choice, limits, plan, text);
  // Where the template ends with the mark of a header, the parser has yet to see it.
  const bool has_mark = family.is_framed && text.ends_with(family.mark);
  if (has_mark && !plan.forced_beginning.starts_with(family.mark)) plan.forced_beginning.insert(0, family.mark);
  text += plan.forced_beginning.substr(has_mark ? std::string_view(family.mark).size() : 0);
  plan.prompts = {model.tokenizer->encode(text, {.parse_special = true})};
}

}  // namespace weft::api
