// Usage, finish reasons and log probabilities as OpenAI writes them.
#include "weft/serve/api/openai_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weft/text/utf8.h"

namespace weft::api {

using nlohmann::json;

json usage_json(const Progress& progress) {
  const Usage& u = progress.usage;
  return {{"prompt_tokens", u.prompt_tokens},
          {"completion_tokens", u.completion_tokens},
          {"total_tokens", u.prompt_tokens + u.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", std::min(u.cached_tokens, u.prompt_tokens)}}},
          {"completion_tokens_details", {{"reasoning_tokens", progress.reasoning_tokens}}}};
}

json usage_of_chunk(const Progress& progress, const Choice& choice) {
  if (!progress.plan.usage_in_chunks) return nullptr;
  const auto prompt = int64_t(progress.plan.prompts[size_t(choice.prompt)].size());
  return {{"prompt_tokens", prompt},
          {"completion_tokens", choice.completion_tokens()},
          {"total_tokens", prompt + choice.completion_tokens()}};
}

std::string finish_reason(const Choice& choice) {
  if (choice.reason == FinishReason::length) return "length";
  return choice.calls.empty() ? "stop" : "tool_calls";
}

json tool_call_json(const NamedCall& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.call.name}, {"arguments", call.call.arguments}}}};
}

namespace {

std::string name_of(const TokenRecord::Entry& entry, TokenNames names) {
  return names == TokenNames::ids ? fmt::format("token_id:{}", entry.token) : replace_invalid_utf8(entry.bytes);
}

json entry_json(const TokenRecord::Entry& entry, TokenNames names) {
  json bytes = json::array();
  for (const char c : entry.bytes) bytes.push_back(int(uint8_t(c)));
  return {{"token", name_of(entry, names)}, {"logprob", entry.log_prob}, {"bytes", std::move(bytes)}};
}

}  // namespace

json chat_logprobs(const std::vector<TokenRecord>& tokens, TokenNames names) {
  json content = json::array();
  for (const TokenRecord& token : tokens) {
    json entry = entry_json(token.own, names);
    entry["top_logprobs"] = json::array();
    for (const auto& alternative : token.top) entry["top_logprobs"].push_back(entry_json(alternative, names));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

int64_t TextOffset::next(std::string_view bytes) {
  const auto pass = [this](std::string_view text) {
    offset_ += int64_t(count_code_points(replace_invalid_utf8(text)));
  };
  const bool goes_on = bytes.empty() || (uint8_t(bytes.front()) & 0xC0) == 0x80;
  if (!goes_on) pass(std::exchange(unfinished_, {}));  // that character never came to its end
  const int64_t here = std::max<int64_t>(offset_, 0);
  unfinished_ += bytes;
  const size_t whole = whole_utf8_prefix(unfinished_);
  pass(std::string_view(unfinished_).substr(0, whole));
  unfinished_.erase(0, whole);
  return here;
}

json completion_logprobs(const std::vector<TokenRecord>& tokens, TokenNames names, TextOffset& offset) {
  json texts = json::array(), log_probs = json::array(), top = json::array(), offsets = json::array();
  for (const TokenRecord& token : tokens) {
    const std::string name = name_of(token.own, names);
    texts.push_back(name);
    offsets.push_back(offset.next(token.own.bytes));
    if (!token.is_known) {
      log_probs.push_back(nullptr);
      top.push_back(nullptr);
      continue;
    }
    log_probs.push_back(token.own.log_prob);
    json alternatives = json::object();
    for (const auto& entry : token.top) alternatives[name_of(entry, names)] = entry.log_prob;
    alternatives[name] = token.own.log_prob;
    top.push_back(std::move(alternatives));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(log_probs)},
          {"top_logprobs", std::move(top)},
          {"text_offset", std::move(offsets)}};
}

json prompt_logprobs_json(const std::vector<TokenRecord>& tokens) {
  json positions = json::array();
  for (const TokenRecord& token : tokens) {
    if (!token.is_known) {
      positions.push_back(nullptr);
      continue;
    }
    json position = json::object();
    for (size_t i = 0; i < token.top.size(); ++i) {
      position[std::to_string(token.top[i].token)] = {{"logprob", token.top[i].log_prob},
                                                      {"rank", i + 1},
                                                      {"decoded_token", replace_invalid_utf8(token.top[i].bytes)}};
    }
    position[std::to_string(token.own.token)] = {{"logprob", token.own.log_prob},
                                                 {"rank", token.rank},
                                                 {"decoded_token", replace_invalid_utf8(token.own.bytes)}};
    positions.push_back(std::move(position));
  }
  return positions;
}

}  // namespace weft::api
