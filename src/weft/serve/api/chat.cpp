// /v1/chat/completions: a conversation in, the assistant's message out.
#include <nlohmann/json.hpp>

#include "weft/serve/api/chat_prompt.h"
#include "weft/serve/api/handlers.h"
#include "weft/serve/api/openai_json.h"

namespace weft::api {
namespace {

using nlohmann::json;

class ChatForm : public ReplyForm {
 public:
  std::string begin(const Progress& p) override {
    std::string text;
    for (int64_t i = 0; i < p.plan.n; ++i) {
      json first = chunk(p, {.index = i}, {{"role", "assistant"}, {"content", ""}}, nullptr);
      if (p.plan.tells_token_ids) first["prompt_token_ids"] = p.plan.prompts.front();
      text += event(first);
    }
    return text;
  }
  std::string piece(const Progress& p, const Choice& choice, const Piece& piece) override {
    std::string text;
    json delta = json::object();
    add_reasoning(piece.reasoning, delta);
    // Clients that look at a chunk's content first would miss what stands beside it.
    const bool has_more = !piece.content.empty() || !piece.calls.empty();
    if (!delta.empty() && has_more) text = event(chunk(p, choice, std::exchange(delta, json::object()), nullptr));
    if (!piece.content.empty() || (piece.calls.empty() && delta.empty())) delta["content"] = piece.content;
    for (size_t i = 0; i < piece.calls.size(); ++i) {
      json call = tool_call_json(piece.calls[i]);
      call["index"] = piece.first_call + i;
      delta["tool_calls"].push_back(std::move(call));
    }
    json last = chunk(p, choice, std::move(delta), nullptr);
    if (p.plan.logprobs) last["choices"][0]["logprobs"] = chat_logprobs(piece.tokens, p.plan.token_names);
    if (p.plan.tells_token_ids) last["choices"][0]["token_ids"] = piece.token_ids;
    return text + event(last);
  }
  std::string finished(const Progress& p, const Choice& choice) override {
    return event(chunk(p, choice, json::object(), finish_reason(choice)));
  }
  std::string end(const Progress& p) override {
    std::string text;
    if (p.plan.stream_usage) {
      json last = frame(p, "chat.completion.chunk", json::array());
      last["usage"] = usage_json(p);
      text = event(last);
    }
    return text + sse_event("[DONE]");
  }
  std::string whole(const Progress& p) override {
    json choices = json::array();
    for (const Choice& choice : p.choices) {
      const bool is_only_calls = choice.content.empty() && !choice.calls.empty();
      json message = {{"role", "assistant"},
                      {"content", is_only_calls ? json(nullptr) : json(choice.content)},
                      {"refusal", nullptr}};
      add_reasoning(choice.reasoning, message);
      for (const NamedCall& call : choice.calls) message["tool_calls"].push_back(tool_call_json(call));
      choices.push_back(
          {{"index", choice.index},
           {"message", std::move(message)},
           {"finish_reason", finish_reason(choice)},
           {"stop_reason", choice.stop ? json(*choice.stop) : json(nullptr)},
           {"logprobs", p.plan.logprobs ? chat_logprobs(choice.tokens, p.plan.token_names) : json(nullptr)}});
      if (p.plan.tells_token_ids) choices.back()["token_ids"] = choice.token_ids;
    }
    json reply = frame(p, "chat.completion", std::move(choices));
    reply["usage"] = usage_json(p);
    if (p.plan.prompt_logprobs) reply["prompt_logprobs"] = prompt_logprobs_json(p.choices.front().prompt_tokens);
    if (p.plan.tells_token_ids) reply["prompt_token_ids"] = p.plan.prompts.front();
    return to_json_text(reply);
  }

 private:
  // Under both names: DeepSeek's and llama-server's, which most clients read, and that of later vLLM and OpenRouter,
  // which others do. Those that know both take one.
  static void add_reasoning(const std::string& text, json& message) {
    if (!text.empty()) message["reasoning_content"] = message["reasoning"] = text;
  }
  static json frame(const Progress& p, const char* object, json choices) {
    return {{"id", "chatcmpl-" + p.id},
            {"object", object},
            {"created", p.created},
            {"model", p.plan.model_name},
            {"choices", std::move(choices)}};
  }
  static std::string event(const json& chunk) { return sse_event(to_json_text(chunk)); }
  static json chunk(const Progress& p, const Choice& choice, json delta, const json& reason) {
    json all = frame(p, "chat.completion.chunk",
                     json::array({{{"index", choice.index},
                                   {"delta", std::move(delta)},
                                   {"finish_reason", reason},
                                   {"logprobs", nullptr}}}));
    if (p.plan.stream_usage) all["usage"] = usage_of_chunk(p, choice);
    return all;
  }
};

ToolChoice tool_choice_of(const JsonView& body) {
  const bool is_parallel = body.boolean_or("parallel_tool_calls", true);
  using Kind = ToolChoice::Kind;
  if (!body.has("tool_choice")) return {Kind::automatic, {}, is_parallel};
  const JsonView choice = body["tool_choice"];
  if (choice.is_object()) {
    if (choice.string_or("type", "function") == "function")
      return {Kind::named, choice.at("function").at("name").string(), is_parallel};
    throw ApiError(400, "tool_choice: write none, auto, required, or a function", {}, "tool_choice");
  }
  const std::string word = choice.string();
  if (word == "none") return {Kind::none, {}};
  if (word == "auto") return {Kind::automatic, {}, is_parallel};
  if (word == "required" || word == "any") return {Kind::required, {}, is_parallel};
  throw ApiError(400, "tool_choice: write none, auto, required, or a function", {}, "tool_choice");
}

void read_logprobs(const JsonView& body, const ApiLimits& limits, Plan& plan) {
  if (body.boolean_or("logprobs", false))
    plan.logprobs = int32_t(body.integer_or("top_logprobs", 0, 0, limits.top_logprobs));
  read_prompt_logprobs(body, limits, plan);
}

}  // namespace

void chat_completions(Context& context, const http::Request& request, const ExchangePointer& exchange) {
  Plan plan;
  read_or_refuse([&] {
    const JsonDocument document = body_of(request, context.limits());
    const JsonView body = document.root();
    context.choose_model(body, plan);
    read_parameters(body, request.body, context.limits(), plan);
    read_logprobs(body, context.limits(), plan);
    read_told_tokens(body, plan);
    plan_chat(read_conversation(body, request.body, context.limits()), tool_choice_of(body), context.limits(), plan);
    std::optional<int64_t> asked;
    for (const char* key : {"max_tokens", "max_completion_tokens"}) {
      if (body.has(key)) asked = body[key].integer(1, INT32_MAX);
    }
    fit_to_context(body, "messages", asked, plan);
  });
  start_generation(std::move(plan), std::make_unique<ChatForm>(), exchange, context.metrics());
}

}  // namespace weft::api
