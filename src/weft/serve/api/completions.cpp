// /v1/completions: texts or tokens in, text out.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "weft/serve/api/handlers.h"
#include "weft/serve/api/openai_json.h"
#include "weft/text/utf8.h"

namespace weft::api {
namespace {

using nlohmann::json;

class CompletionForm : public ReplyForm {
 public:
  std::string begin(const Progress& p) override {
    std::string text;
    if (!p.plan.tells_token_ids) return text;
    for (size_t i = 0; i < p.plan.prompts.size() * size_t(p.plan.n); ++i) {
      const Choice choice{.index = int64_t(i), .prompt = int64_t(i) / p.plan.n};
      json entry = entry_json(choice, "");
      entry["prompt_token_ids"] = p.plan.prompts[size_t(choice.prompt)], entry["token_ids"] = json::array();
      text += event(p, choice, std::move(entry));
    }
    return text;
  }
  std::string piece(const Progress& p, const Choice& choice, const Piece& piece) override {
    json entry = entry_json(choice, piece.content);
    if (p.plan.logprobs) {
      const auto [offset, is_first] = offsets_.try_emplace(choice.index);
      if (is_first) offset->second = TextOffset(first_offset(p, choice));
      entry["logprobs"] = completion_logprobs(piece.tokens, p.plan.token_names, offset->second);
    }
    if (p.plan.tells_token_ids) entry["token_ids"] = piece.token_ids;
    return event(p, choice, std::move(entry));
  }
  std::string finished(const Progress& p, const Choice& choice) override {
    json entry = entry_json(choice, "");
    entry["finish_reason"] = finish_reason(choice);
    entry["stop_reason"] = choice.stop ? json(*choice.stop) : json(nullptr);
    return event(p, choice, std::move(entry));
  }
  std::string end(const Progress& p) override {
    std::string text;
    if (p.plan.stream_usage) {
      json chunk = frame(p, json::array());
      chunk["usage"] = usage_json(p);
      text = sse_event(to_json_text(chunk));
    }
    return text + sse_event("[DONE]");
  }
  std::string whole(const Progress& p) override {
    json choices = json::array();
    for (const Choice& choice : p.choices) {
      json entry = entry_json(choice, choice.content);
      entry["finish_reason"] = finish_reason(choice);
      entry["stop_reason"] = choice.stop ? json(*choice.stop) : json(nullptr);
      TextOffset offset(first_offset(p, choice));
      if (p.plan.logprobs) entry["logprobs"] = completion_logprobs(choice.tokens, p.plan.token_names, offset);
      if (p.plan.prompt_logprobs) entry["prompt_logprobs"] = prompt_logprobs_json(choice.prompt_tokens);
      if (p.plan.tells_token_ids) {
        entry["prompt_token_ids"] = p.plan.prompts[size_t(choice.prompt)];
        entry["token_ids"] = choice.token_ids;
      }
      choices.push_back(std::move(entry));
    }
    json reply = frame(p, std::move(choices));
    reply["usage"] = usage_json(p);
    return to_json_text(reply);
  }

 private:
  // Tokens of a prompt that is told may have more characters than its text: what begins every text, a space before
  // the first word.
  static int64_t first_offset(const Progress& p, const Choice& choice) {
    if (p.plan.echoes.empty()) return 0;
    auto left = int64_t(count_code_points(p.plan.echoes[size_t(choice.prompt)]));
    std::string bytes;
    for (const TokenRecord& token : choice.prompt_tokens) bytes += token.own.bytes;
    left -= int64_t(count_code_points(replace_invalid_utf8(bytes)));
    return std::min<int64_t>(left, 0);
  }
  static json entry_json(const Choice& choice, const std::string& text) {
    return {{"index", choice.index}, {"text", text}, {"finish_reason", nullptr}, {"logprobs", nullptr}};
  }
  static json frame(const Progress& p, json choices) {
    return {{"id", "cmpl-" + p.id},
            {"object", "text_completion"},
            {"created", p.created},
            {"model", p.plan.model_name},
            {"choices", std::move(choices)}};
  }
  static std::string event(const Progress& p, const Choice& choice, json entry) {
    json chunk = frame(p, json::array({std::move(entry)}));
    if (p.plan.stream_usage) chunk["usage"] = usage_of_chunk(p, choice);
    return sse_event(to_json_text(chunk));
  }
  std::map<int64_t, TextOffset> offsets_;  // of each choice: how many characters were told
};

// With what the model expects before a text, but not with what would end it; a beginning that is also an end stays.
std::vector<int32_t> encode_text(const std::string& text, const JsonView& body, const Plan& plan) {
  const bool add_special = body.boolean_or("add_special_tokens", true);
  std::vector<int32_t> tokens = plan.model->tokenizer->encode(text, {.add_special = add_special});
  const auto& ends = plan.model->end_tokens;
  if (add_special && tokens.size() > 1 && std::find(ends.begin(), ends.end(), tokens.back()) != ends.end())
    tokens.pop_back();
  return tokens;
}

// A text, a list of texts, a list of tokens, or a list of lists of tokens; with what is told of them where `echo`
// asks.
void read_prompts(const JsonView& body, const ApiLimits& limits, Plan& plan) {
  const JsonView prompt = body.at("prompt");
  const int64_t vocab = plan.model->engine->limits().vocab;
  const bool has_echo = body.boolean_or("echo", false);
  const auto take_text = [&](const std::string& text) {
    plan.prompts.push_back(encode_text(text, body, plan));
    if (has_echo) plan.echoes.push_back(text);
  };
  const auto take_tokens = [&](const JsonView& tokens) {
    plan.prompts.push_back(read_tokens(tokens, vocab));
    if (has_echo)
      plan.echoes.push_back(replace_invalid_utf8(plan.model->tokenizer->decode(plan.prompts.back(), true)));
  };
  if (prompt.is_string()) {
    take_text(prompt.string());
  } else if (!prompt.is_array()) {
    throw ApiError(400, "prompt: write a text, a list of texts, a list of tokens, or a list of lists of tokens", {},
                   "prompt");
  } else if (prompt.size() > 0 && prompt.at(int64_t(0)).is_number()) {
    take_tokens(prompt);
  } else {
    if (prompt.size() > limits.choices)
      throw ApiError(400, fmt::format("{} prompts, and {} are allowed", prompt.size(), limits.choices), {}, "prompt");
    for (int64_t i = 0; i < prompt.size(); ++i) {
      const JsonView one = prompt.at(i);
      one.is_string() ? take_text(one.string()) : take_tokens(one);
    }
  }
  if (plan.prompts.empty()) throw ApiError(400, "prompt: there is none", {}, "prompt");
  for (const auto& tokens : plan.prompts) {
    if (tokens.empty()) throw ApiError(400, "prompt: it is empty, and at least one token is needed", {}, "prompt");
  }
}

// The prompts become such that the answers go on to the suffix.
void read_suffix(const JsonView& body, Plan& plan) {
  const std::string suffix = body.string_or("suffix", "");
  if (suffix.empty()) return;
  const std::optional<FillInMiddle>& form = plan.model->fill_in_middle;
  if (!form)
    throw ApiError(400, "suffix: this model does not fill in the middle: its vocabulary has no tokens for it",
                   "unsupported", "suffix");
  if (!plan.echoes.empty()) throw ApiError(400, "suffix: it excludes echo", "unsupported", "suffix");
  if (body.has("truncate_prompt_tokens"))
    throw ApiError(400, "suffix: it excludes truncate_prompt_tokens", "unsupported", "suffix");
  for (auto& prompt : plan.prompts) prompt = form->prompt(*plan.model->tokenizer, std::move(prompt), suffix);
  if (!body.boolean_or("ignore_eos", false))
    plan.stop_tokens.insert(plan.stop_tokens.end(), form->ends.begin(), form->ends.end());
}

void read_completion_logprobs(const JsonView& body, const ApiLimits& limits, Plan& plan) {
  if (body.has("logprobs")) {
    const JsonView value = body["logprobs"];
    if (value.is_bool())
      plan.logprobs = value.boolean() ? std::optional<int32_t>(0) : std::nullopt;
    else
      plan.logprobs = int32_t(value.integer(0, limits.top_logprobs));
  }
  read_prompt_logprobs(body, limits, plan);
  if (!plan.echoes.empty() && plan.logprobs)
    plan.prompt_logprobs = std::max(plan.prompt_logprobs.value_or(0), *plan.logprobs);
}

void read_best_of(const JsonView& body, const ApiLimits& limits, Plan& plan) {
  plan.best_of = body.integer_or("best_of", plan.n, 1, limits.n);
  if (plan.best_of < plan.n) throw ApiError(400, "best_of: write at least n", {}, "best_of");
  if (plan.best_of > plan.n && plan.stream)
    throw ApiError(400, "best_of: which answers are best is known at the end; leave out stream", {}, "best_of");
  if (plan.best_of * int64_t(plan.prompts.size()) > limits.choices)
    throw ApiError(400, fmt::format("prompts and answers to each: at most {} in all are allowed", limits.choices), {},
                   "n");
}

}  // namespace

void completions(Context& context, const http::Request& request, const ExchangePointer& exchange) {
  Plan plan;
  read_or_refuse([&] {
    const JsonDocument document = body_of(request, context.limits());
    const JsonView body = document.root();
    context.choose_model(body, plan);
    read_parameters(body, request.body, context.limits(), plan);
    read_prompts(body, context.limits(), plan);
    read_completion_logprobs(body, context.limits(), plan);
    read_told_tokens(body, plan);
    read_best_of(body, context.limits(), plan);
    read_suffix(body, plan);
    constexpr int64_t kDefaultTokens = 16;  // as OpenAI has it
    fit_to_context(body, "prompt", body.integer_or("max_tokens", kDefaultTokens, 0, INT32_MAX), plan);
  });
  start_generation(std::move(plan), std::make_unique<CompletionForm>(), exchange, context.metrics());
}

}  // namespace weft::api
