// Relevance: a template and two tokens.
#include "weft/serve/api/relevance.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace weft::api {
namespace {

constexpr std::string_view kQwen3Template =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: "
    "{{ instruction or 'Given a web search query, retrieve relevant passages that answer the query' }}\n<Query>: "
    "{{ query }}\n<Document>: {{ document }}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>{{ '\n\n' }}";

int32_t token_of(const Tokenizer& tokenizer, std::string_view word) {
  const std::vector<int32_t> ids = tokenizer.encode(word, {});
  if (ids.size() != 1)
    throw UsageError("--rerank-tokens: \"{}\" is {} tokens of this model's tokenizer, and must be one", word,
                     ids.size());
  return ids.front();
}

}  // namespace

Relevance::Relevance(ChatTemplate chat, const Tokenizer& tokenizer, std::string_view yes, std::string_view no)
    : chat_(std::move(chat)), tokens_{token_of(tokenizer, yes), token_of(tokenizer, no)} {}

ChatTemplate Relevance::qwen3() { return ChatTemplate(kQwen3Template, "--reranker qwen3"); }

Relevance::Prompt Relevance::prompt(const Tokenizer& tokenizer, const std::string& query, const std::string& document,
                                    const std::string& instruction) const {
  if (!around_) return {.ids = tokenizer.encode(written(query, document, instruction), {})};
  if (!instruction.empty())
    throw UsageError("instruction: this model reads a query and a document alone: leave it out");
  Prompt prompt{.ids = around_->before};
  const auto add = [&](const std::vector<int32_t>& ids) {
    prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
  };
  add(tokenizer.encode(query)), add(around_->between);
  prompt.second_text = int64_t(prompt.ids.size());
  add(tokenizer.encode(document)), add(around_->after);
  return prompt;
}

std::string Relevance::written(const std::string& query, const std::string& document,
                               const std::string& instruction) const {
  using nlohmann::ordered_json;
  ordered_json messages = ordered_json::array();
  const auto add = [&](const char* role, const std::string& content) {
    messages.push_back({{"role", role}, {"content", content}});
  };
  if (!instruction.empty()) add("system", instruction);
  add("query", query), add("document", document);
  const auto text = [](const std::string& value) { return jinja::Value::from_json(ordered_json(value)); };
  return chat_->render(
      {.messages = jinja::Value::from_json(messages),
       .add_generation_prompt = true,
       .variables = {{"query", text(query)}, {"document", text(document)}, {"instruction", text(instruction)}}});
}

double Relevance::score(std::span<const float> logits) const {
  if (activation_ == ScoreRule::Activation::none) return double(logits[0]);
  const float rest = logits.size() > 1 ? logits[1] : 0;
  return 1 / (1 + std::exp(double(rest - logits[0])));
}

}  // namespace weft::api
