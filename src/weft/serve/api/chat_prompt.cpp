// Chat prompts: messages are made plain, then the model's template is rendered.
#include "weft/serve/api/chat_prompt.h"

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

// A call that a model begins by itself has the form of one of these tools. Where that cannot be said of them, calls
// are read as they come.
std::optional<OutputForm> free_calls_of(const ordered_json& tools, const ToolChoice& choice, const ServedModel& model,
                                        const ApiLimits& limits) {
  if (!model.constraints) return {};
  try {
    OutputForm form = calls_of(tools, choice, model, limits);
    form.trigger = call_trigger(model.tool_format);
    form.is_whole_answer = tool_family(model.tool_format).is_whole_answer;
    form.may_be_text = form.trigger.empty();
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

void read_tools(const ordered_json& tools, const ToolChoice& choice, const ApiLimits& limits, Plan& plan) {
  const ServedModel& model = *plan.model;
  if (tool_family(model.tool_format).style == CallStyle::tagged) plan.tools = schemas_of(tools);
  plan.one_call = !choice.is_parallel || choice.kind == ToolChoice::Kind::named;
  if (choice.kind != ToolChoice::Kind::automatic) {
    OutputForm form = calls_of(tools, choice, model, limits);
    plan.forced_beginning =
        model.constraints ? marker_before(model.tool_format) : forced_beginning(model.tool_format, choice.name);
    if (model.constraints) plan.form = std::move(form);
  } else if (!plan.form) {
    plan.form = free_calls_of(tools, choice, model, limits);
  }
}

// Calls are parsed out of the answers, for which the parser must see the control tokens of their family.
void read_calls(Plan& plan) {
  plan.reads_tools = true;
  for (const std::string& marker : tool_markers(plan.model->tool_format)) {
    if (const auto id = plan.model->tokenizer->find(marker)) plan.text.kept_special.push_back(*id);
  }
}

// Templates take the arguments of earlier calls as an object, or as its text.
std::string render(const ChatTemplate& chat_template, ChatInput input, ordered_json messages) {
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

}  // namespace

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
  normalize(conversation.messages);
  const bool has_tools = conversation.tools.is_array() && !conversation.tools.empty();
  if (has_tools && int64_t(conversation.tools.size()) > limits.tools)
    throw ApiError(400,
                   fmt::format("tools: there are {}, and {} are allowed", conversation.tools.size(), limits.tools),
                   {}, "tools");
  ChatInput input{.messages = {}, .add_generation_prompt = true};
  const ToolFamily& family = tool_family(model.tool_format);
  // Of answers that are framed, also text is read out of its frame; not where another form is asked for.
  if ((has_tools && choice.kind != ToolChoice::Kind::none) || (family.is_framed && !plan.form)) read_calls(plan);
  if (has_tools && choice.kind != ToolChoice::Kind::none) {
    input.tools = jinja::Value::from_json(conversation.tools);
    read_tools(conversation.tools, choice, limits, plan);
  } else if (choice.kind == ToolChoice::Kind::required || choice.kind == ToolChoice::Kind::named) {
    throw ApiError(400, "tool_choice demands a call, and there are no tools", {}, "tool_choice");
  }
  if (conversation.template_variables.is_object()) {
    for (const auto& [name, value] : conversation.template_variables.items())
      input.variables.emplace_back(name, jinja::Value::from_json(value));
  }
  std::string text = render(*model.chat_template, std::move(input), std::move(conversation.messages));
  // Where the template ends with the mark of a header, the parser has yet to see it.
  const bool has_mark = family.is_framed && text.ends_with(family.mark);
  if (has_mark && !plan.forced_beginning.starts_with(family.mark)) plan.forced_beginning.insert(0, family.mark);
  text += plan.forced_beginning.substr(has_mark ? std::string_view(family.mark).size() : 0);
  plan.prompts = {model.tokenizer->encode(text, {.parse_special = true})};
}

}  // namespace weft::api
