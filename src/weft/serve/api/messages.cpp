// /v1/messages and /v1/messages/count_tokens: Anthropic's protocol.
#include <nlohmann/json.hpp>

#include "weft/serve/api/chat_prompt.h"
#include "weft/serve/api/handlers.h"
#include "weft/serve/api/openai_json.h"

namespace weft::api {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

json usage_of(const Usage& usage) {
  const int64_t cached = std::min(usage.cached_tokens, usage.prompt_tokens);
  return {{"input_tokens", usage.prompt_tokens - cached},
          {"cache_read_input_tokens", cached},
          {"cache_creation_input_tokens", 0},
          {"output_tokens", usage.completion_tokens}};
}

json input_of(const ToolCall& call) {
  try {
    return parse_json(call.arguments, "a tool call");
  } catch (const Error&) {
    return json::object();
  }
}

json stop_reason(const Choice& choice) {
  if (choice.reason == FinishReason::length) return "max_tokens";
  if (choice.stop) return "stop_sequence";
  return choice.calls.empty() ? "end_turn" : "tool_use";
}

json message_json(const Progress& p, json content) {
  return {{"id", "msg_" + p.id},           {"type", "message"},
          {"role", "assistant"},           {"model", p.plan.model_name},
          {"content", std::move(content)}, {"stop_reason", nullptr},
          {"stop_sequence", nullptr},      {"usage", usage_of(p.usage)}};
}

// Clients keep a thinking block only with a signature, and send both back; here nothing depends on it.
std::string signature(const Progress& p) { return "weft-" + p.id; }

json block_of(const Progress& p, const AnswerPart& part) {
  switch (part.of) {
    case Stretch::Of::reasoning: return {{"type", "thinking"}, {"thinking", part.text}, {"signature", signature(p)}};
    case Stretch::Of::content: return {{"type", "text"}, {"text", part.text}};
    case Stretch::Of::calls: break;
  }
  const NamedCall& call = *part.call;
  return {{"type", "tool_use"}, {"id", call.id}, {"name", call.call.name}, {"input", input_of(call.call)}};
}

class MessagesForm : public ReplyForm {
 public:
  Dialect dialect() const override { return Dialect::anthropic; }

  std::string begin(const Progress& p) override {
    return event({{"type", "message_start"}, {"message", message_json(p, json::array())}}) +
           event({{"type", "ping"}});
  }
  std::string piece(const Progress& p, const Choice&, const Piece& piece) override {
    std::string text;
    if (!piece.reasoning.empty()) {
      text += begin_block(p, Open::thinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
      text += delta({{"type", "thinking_delta"}, {"thinking", piece.reasoning}});
    }
    if (!piece.content.empty()) {
      text += begin_block(p, Open::text, {{"type", "text"}, {"text", ""}});
      text += delta({{"type", "text_delta"}, {"text", piece.content}});
    }
    for (const NamedCall& call : piece.calls) {
      text += end_block(p);
      text += open({{"type", "tool_use"}, {"id", call.id}, {"name", call.call.name}, {"input", json::object()}});
      text += delta({{"type", "input_json_delta"}, {"partial_json", call.call.arguments}});
      text += close();
    }
    return text;
  }
  std::string finished(const Progress& p, const Choice&) override { return end_block(p); }
  static std::string finished_as(const Choice& choice, const Usage& usage) {
    return event({{"type", "message_delta"},
                  {"delta",
                   {{"stop_reason", stop_reason(choice)},
                    {"stop_sequence", choice.stop ? json(*choice.stop) : json(nullptr)}}},
                  {"usage", usage_of(usage)}});
  }
  std::string end(const Progress& p) override {
    return finished_as(p.choices.front(), p.usage) + event({{"type", "message_stop"}});
  }
  std::string whole(const Progress& p) override {
    const Choice& choice = p.choices.front();
    json content = json::array();
    for (const AnswerPart& part : parts_of(choice)) content.push_back(block_of(p, part));
    if (content.empty()) content.push_back({{"type", "text"}, {"text", ""}});
    json message = message_json(p, std::move(content));
    message["stop_reason"] = stop_reason(choice);
    if (choice.stop) message["stop_sequence"] = *choice.stop;
    return to_json_text(message);
  }

 private:
  enum class Open : uint8_t { nothing, thinking, text };
  static std::string event(const json& body) {
    return sse_event(to_json_text(body), body["type"].get<std::string>());
  }
  std::string open(json block) const {
    return event({{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(block)}});
  }
  std::string delta(json change) const {
    return event({{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(change)}});
  }
  std::string close() { return event({{"type", "content_block_stop"}, {"index", index_++}}); }
  std::string begin_block(const Progress& p, Open what, json block) {
    if (open_ == what) return {};
    std::string text = end_block(p);
    open_ = what;
    return text += open(std::move(block));
  }
  std::string end_block(const Progress& p) {
    const Open was = std::exchange(open_, Open::nothing);
    std::string text;
    if (was == Open::thinking) text += delta({{"type", "signature_delta"}, {"signature", signature(p)}});
    return was == Open::nothing ? text : text += close();
  }

  int64_t index_ = 0;  // of the content block
  Open open_ = Open::nothing;
};

const ordered_json& member(const ordered_json& object, const char* key) {
  static const ordered_json nothing;
  return object.is_object() && object.contains(key) ? object[key] : nothing;
}

// A message whose content is blocks becomes some in OpenAI's form: results of tools stand for themselves.
void add_message(const ordered_json& message, ordered_json& messages) {
  const ordered_json& content = member(message, "content");
  if (!content.is_array()) {
    messages.push_back(message);
    return;
  }
  ordered_json plain = {{"role", member(message, "role")}, {"content", ordered_json::array()}};
  for (const ordered_json& block : content) {
    const ordered_json& type = member(block, "type");
    if (type == "tool_use") {
      plain["tool_calls"].push_back(
          {{"id", member(block, "id")},
           {"type", "function"},
           {"function", {{"name", member(block, "name")}, {"arguments", member(block, "input")}}}});
    } else if (type == "tool_result") {
      messages.push_back(
          {{"role", "tool"}, {"tool_call_id", member(block, "tool_use_id")}, {"content", member(block, "content")}});
    } else {
      plain["content"].push_back(block);  // thinking too, which every route takes in this form
    }
  }
  if (!plain["content"].empty() || plain.contains("tool_calls")) messages.push_back(std::move(plain));
}

Conversation conversation_of_messages(const http::Request& request, const JsonView& view, const ApiLimits& limits) {
  const ordered_json body = parse_ordered_json(request.body, "the request", limits.json);
  Conversation result;
  result.thinking = read_thinking(view);
  result.template_variables = member(body, "chat_template_kwargs");
  if (const ordered_json& system = member(body, "system"); !system.is_null())
    result.messages.push_back({{"role", "system"}, {"content", system}});
  const ordered_json& messages = member(body, "messages");
  if (!messages.is_array()) throw ApiError(400, "messages: write a list with at least one message", {}, "messages");
  for (const ordered_json& message : messages) add_message(message, result.messages);
  // An answer that the client began.
  if (!result.messages.empty()) {
    const ordered_json& last = result.messages.back();
    result.continues_last = member(last, "role") == "assistant" && !last.contains("tool_calls");
  }
  for (const ordered_json& tool : member(body, "tools")) {
    result.tools.push_back({{"type", "function"},
                            {"function",
                             {{"name", member(tool, "name")},
                              {"description", member(tool, "description")},
                              {"parameters", member(tool, "input_schema")}}}});
  }
  return result;
}

ToolChoice tool_choice_of_messages(const JsonView& body) {
  using Kind = ToolChoice::Kind;
  if (!body.has("tool_choice")) return {};
  const std::string type = body["tool_choice"].at("type").string();
  const bool is_parallel = !body["tool_choice"].boolean_or("disable_parallel_tool_use", false);
  if (type == "auto") return {Kind::automatic, {}, is_parallel};
  if (type == "none") return {Kind::none, {}};
  if (type == "any") return {Kind::required, {}, is_parallel};
  if (type == "tool") return {Kind::named, body["tool_choice"].at("name").string()};
  throw ApiError(400, "tool_choice.type: write auto, any, tool or none", {}, "tool_choice");
}

void plan_messages(Context& context, const http::Request& request, const JsonView& body, Plan& plan) {
  context.choose_model(body, plan);
  read_parameters(body, request.body, context.limits(), plan);
  plan.n = plan.best_of = 1;
  read_stops(body, "stop_sequences", context.limits(), plan);
  plan_chat(conversation_of_messages(request, body, context.limits()), tool_choice_of_messages(body),
            context.limits(), plan);
}

}  // namespace

void messages(Context& context, const http::Request& request, const ExchangePointer& exchange) {
  Plan plan;
  read_or_refuse([&] {
    const JsonDocument document = body_of(request, context.limits());
    plan_messages(context, request, document.root(), plan);
    fit_to_context(document.root(), "messages", document.root().at("max_tokens").integer(1, INT32_MAX), plan);
  });
  start_generation(std::move(plan), std::make_unique<MessagesForm>(), exchange, context.metrics());
}

void count_tokens(Context& context, const http::Request& request, const ExchangePointer& exchange) {
  Plan plan;
  read_or_refuse([&] {
    const JsonDocument document = body_of(request, context.limits());
    plan_messages(context, request, document.root(), plan);
  });
  exchange->reply({.body = to_json_text({{"input_tokens", plan.prompts.front().size()}})});
}

}  // namespace weft::api
