// /v1/responses: OpenAI's protocol of typed items and events. Nothing is stored: each request brings its
// conversation.
#include <nlohmann/json.hpp>

#include "weft/serve/api/chat_prompt.h"
#include "weft/serve/api/handlers.h"
#include "weft/serve/api/openai_json.h"

namespace weft::api {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

json text_part(const std::string& text) {
  return {{"type", "output_text"}, {"text", text}, {"annotations", json::array()}};
}
json message_item(const std::string& id, json content, const char* status) {
  return {
      {"id", id}, {"type", "message"}, {"role", "assistant"}, {"status", status}, {"content", std::move(content)}};
}
json call_item(const NamedCall& call, const std::string& arguments, const char* status) {
  return {{"id", "fc_" + call.id}, {"type", "function_call"}, {"status", status},
          {"call_id", call.id},    {"name", call.call.name},  {"arguments", arguments}};
}
std::string message_id(const Progress& p) { return "msg_" + p.id; }
std::string reasoning_id(const Progress& p) { return "rs_" + p.id; }
json reasoning_part(const std::string& text) { return {{"type", "reasoning_text"}, {"text", text}}; }
// The text itself stands in the content; a summary is of models whose thoughts are hidden.
json reasoning_item(const Progress& p, json content, const char* status) {
  return {{"id", reasoning_id(p)},
          {"type", "reasoning"},
          {"status", status},
          {"summary", json::array()},
          {"content", std::move(content)}};
}

class ResponsesForm : public ReplyForm {
 public:
  ResponsesForm(json tools, json instructions, std::optional<int64_t> max_output_tokens)
      : tools_(std::move(tools)), instructions_(std::move(instructions)), max_output_tokens_(max_output_tokens) {}

  std::string begin(const Progress& p) override {
    const json response = response_json(p, "in_progress", json::array());
    std::string text = event("response.created", {{"response", response}});
    return text += event("response.in_progress", {{"response", response}});
  }
  std::string piece(const Progress& p, const Choice&, const Piece& piece) override {
    std::string text;
    if (!piece.reasoning.empty()) {
      text += open_item(p, Open::reasoning);
      text_ += piece.reasoning;
      text += event("response.reasoning_text.delta", at_part(p, {{"delta", piece.reasoning}}));
    }
    if (!piece.content.empty()) {
      text += open_item(p, Open::text);
      text_ += piece.content;
      text +=
          event("response.output_text.delta", at_part(p, {{"delta", piece.content}, {"logprobs", json::array()}}));
    }
    for (const NamedCall& call : piece.calls) {
      text += close_item(p);
      text += call_events(call);
    }
    return text;
  }
  std::string finished(const Progress& p, const Choice&) override { return close_item(p); }
  std::string end(const Progress& p) override {
    const bool is_cut = p.choices.front().reason == FinishReason::length;
    return event(is_cut ? "response.incomplete" : "response.completed", {{"response", complete(p, output_)}});
  }
  std::string whole(const Progress& p) override {
    const Choice& choice = p.choices.front();
    json output = json::array();
    if (!choice.reasoning.empty())
      output.push_back(reasoning_item(p, json::array({reasoning_part(choice.reasoning)}), "completed"));
    if (!choice.content.empty() || (choice.calls.empty() && choice.reasoning.empty()))
      output.push_back(message_item(message_id(p), json::array({text_part(choice.content)}), "completed"));
    for (const NamedCall& call : choice.calls) output.push_back(call_item(call, call.call.arguments, "completed"));
    return to_json_text(complete(p, std::move(output)));
  }

 private:
  enum class Open : uint8_t { nothing, reasoning, text };
  std::string event(const std::string& type, json body) {
    body["type"] = type;
    body["sequence_number"] = sequence_++;
    return sse_event(to_json_text(body), type);
  }
  json at_part(const Progress& p, json body) const {
    body["item_id"] = open_ == Open::reasoning ? reasoning_id(p) : message_id(p);
    body["output_index"] = output_.size();
    body["content_index"] = 0;
    return body;
  }

  json open_part() const { return open_ == Open::reasoning ? reasoning_part(text_) : text_part(text_); }
  json item(const Progress& p, json content, const char* status) const {
    return open_ == Open::reasoning ? reasoning_item(p, std::move(content), status)
                                    : message_item(message_id(p), std::move(content), status);
  }
  std::string open_item(const Progress& p, Open what) {
    if (open_ == what) return {};
    std::string text = close_item(p);
    open_ = what;
    text += event("response.output_item.added",
                  {{"output_index", output_.size()}, {"item", item(p, json::array(), "in_progress")}});
    return text += event("response.content_part.added", at_part(p, {{"part", open_part()}}));
  }
  std::string close_item(const Progress& p) {
    if (open_ == Open::nothing) return {};
    json done = {{"text", text_}};
    if (open_ == Open::text) done["logprobs"] = json::array();
    std::string text = event(open_ == Open::text ? "response.output_text.done" : "response.reasoning_text.done",
                             at_part(p, std::move(done)));
    text += event("response.content_part.done", at_part(p, {{"part", open_part()}}));
    const json whole = item(p, json::array({open_part()}), "completed");
    text += event("response.output_item.done", {{"output_index", output_.size()}, {"item", whole}});
    output_.push_back(whole);
    text_.clear();
    open_ = Open::nothing;
    return text;
  }
  std::string call_events(const NamedCall& call) {
    const json item = call_item(call, call.call.arguments, "completed");
    const json place = {{"item_id", item["id"]}, {"output_index", output_.size()}};
    json delta = place, done = place;
    delta["delta"] = call.call.arguments;
    done["arguments"] = call.call.arguments;
    done["name"] = call.call.name;
    std::string text = event("response.output_item.added",
                             {{"output_index", output_.size()}, {"item", call_item(call, "", "in_progress")}});
    text += event("response.function_call_arguments.delta", std::move(delta));
    text += event("response.function_call_arguments.done", std::move(done));
    text += event("response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(item);
    return text;
  }

  json response_json(const Progress& p, const char* status, json output) const {
    return {{"id", "resp_" + p.id},
            {"object", "response"},
            {"created_at", p.created},
            {"status", status},
            {"model", p.plan.model_name},
            {"output", std::move(output)},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"instructions", instructions_},
            {"max_output_tokens", max_output_tokens_ ? json(*max_output_tokens_) : json(nullptr)},
            {"metadata", json::object()},
            {"parallel_tool_calls", true},
            {"previous_response_id", nullptr},
            {"store", false},
            {"temperature", p.plan.sampling.temperature},
            {"top_p", p.plan.sampling.top_p},
            {"text", {{"format", {{"type", "text"}}}}},
            {"tool_choice", "auto"},
            {"tools", tools_},
            {"truncation", "disabled"},
            {"usage", nullptr}};
  }
  json complete(const Progress& p, json output) const {
    const bool is_cut = p.choices.front().reason == FinishReason::length;
    json response = response_json(p, is_cut ? "incomplete" : "completed", std::move(output));
    if (is_cut) response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    response["usage"] = {
        {"input_tokens", p.usage.prompt_tokens},
        {"input_tokens_details", {{"cached_tokens", std::min(p.usage.cached_tokens, p.usage.prompt_tokens)}}},
        {"output_tokens", p.usage.completion_tokens},
        {"output_tokens_details", {{"reasoning_tokens", p.reasoning_tokens}}},
        {"total_tokens", p.usage.prompt_tokens + p.usage.completion_tokens}};
    return response;
  }

  const json tools_, instructions_;
  const std::optional<int64_t> max_output_tokens_;
  int64_t sequence_ = 0;
  json output_ = json::array();  // items that are complete
  std::string text_;             // of the item that is open
  Open open_ = Open::nothing;
};

ordered_json take(ordered_json& object, const char* key) {
  return object.is_object() && object.contains(key) ? object[key] : ordered_json();
}

std::string reasoning_of(ordered_json& item) {
  for (const char* key : {"content", "summary"}) {
    std::string text;
    for (ordered_json& part : take(item, key)) {
      const ordered_json one = take(part, "text");
      if (one.is_string()) text += one.get_ref<const std::string&>();
    }
    if (!text.empty()) return text;
  }
  return {};
}

// Items of the input as messages: calls of tools and their results have forms of their own here, and what was thought
// before a message or a call is a part of it.
class ItemReader {
 public:
  explicit ItemReader(ordered_json& messages) : messages_(messages) {}

  void add(ordered_json& item) {
    const ordered_json type = take(item, "type");
    if (type == "reasoning") {
      reasoning_ = reasoning_of(item);
    } else if (type == "function_call") {
      const ordered_json call = {
          {"id", take(item, "call_id")},
          {"type", "function"},
          {"function", {{"name", take(item, "name")}, {"arguments", take(item, "arguments")}}}};
      add_message({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", ordered_json::array({call})}});
    } else if (type == "function_call_output") {
      add_message({{"role", "tool"}, {"tool_call_id", take(item, "call_id")}, {"content", take(item, "output")}});
    } else if (type.is_null() || type == "message") {
      add_message({{"role", take(item, "role")}, {"content", take(item, "content")}});
    }  // others are nothing that templates know
  }

 private:
  void add_message(ordered_json message) {
    const std::string reasoning = std::exchange(reasoning_, {});
    if (!reasoning.empty() && message["role"] == "assistant") message["reasoning_content"] = reasoning;
    messages_.push_back(std::move(message));
  }

  ordered_json& messages_;
  std::string reasoning_;
};

Conversation conversation_of_response(ordered_json body, const JsonView& view) {
  Conversation result;
  result.thinking = read_thinking(view);
  result.template_variables = take(body, "chat_template_kwargs");
  if (const ordered_json instructions = take(body, "instructions"); instructions.is_string())
    result.messages.push_back({{"role", "system"}, {"content", instructions}});
  ordered_json input = take(body, "input");
  if (input.is_string())
    result.messages.push_back({{"role", "user"}, {"content", input}});
  else if (!input.is_array())
    throw ApiError(400, "input: write a text or a list of items", {}, "input");
  ItemReader items(result.messages);
  if (input.is_array())
    for (ordered_json& item : input) items.add(item);
  ordered_json tools = take(body, "tools");
  for (ordered_json& tool : tools) {
    if (take(tool, "type") != "function")
      throw ApiError(400, "tools: only functions are offered", "unsupported", "tools");
    result.tools.push_back({{"type", "function"},
                            {"function",
                             {{"name", take(tool, "name")},
                              {"description", take(tool, "description")},
                              {"parameters", take(tool, "parameters")}}}});
  }
  return result;
}

ToolChoice tool_choice_of_response(const JsonView& body) {
  using Kind = ToolChoice::Kind;
  const bool is_parallel = body.boolean_or("parallel_tool_calls", true);
  if (!body.has("tool_choice")) return {Kind::automatic, {}, is_parallel};
  const JsonView choice = body["tool_choice"];
  if (choice.is_object()) return {Kind::named, choice.at("name").string(), is_parallel};
  const std::string word = choice.string();
  if (word == "none") return {Kind::none, {}};
  return {word == "required" ? Kind::required : Kind::automatic, {}, is_parallel};
}

}  // namespace

void responses(Context& context, const http::Request& request, const ExchangePointer& exchange) {
  Plan plan;
  std::optional<int64_t> asked;
  json tools = json::array(), instructions;
  read_or_refuse([&] {
    const JsonDocument document = body_of(request, context.limits());
    const JsonView body = document.root();
    if (body.has("previous_response_id"))
      throw ApiError(400, "previous_response_id: this server stores no responses; send the whole conversation",
                     "unsupported", "previous_response_id");
    context.choose_model(body, plan);
    read_parameters(body, request.body, context.limits(), plan);
    plan.n = plan.best_of = 1;
    plan_chat(conversation_of_response(parse_ordered_json(request.body, "the request", context.limits().json), body),
              tool_choice_of_response(body), context.limits(), plan);
    if (body.has("max_output_tokens")) asked = body["max_output_tokens"].integer(1, INT32_MAX);
    fit_to_context(body, asked, plan);
    if (body.has("tools")) tools = body["tools"].raw();
    if (body.has("instructions")) instructions = body["instructions"].raw();
  });
  start_generation(std::move(plan), std::make_unique<ResponsesForm>(std::move(tools), std::move(instructions), asked),
                   exchange, context.metrics());
}

}  // namespace weft::api
