// /v1/embeddings, /v1/score, /v1/rerank, /classify: what is made of vectors of texts, of how a model judges pairs of
// them, or of its scores.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "weft/serve/api/chat_prompt.h"
#include "weft/serve/api/handlers.h"
#include "weft/serve/api/openai_json.h"
#include "weft/serve/api/text_vectors.h"
#include "weft/serve/unit_length.h"
#include "weft/text/base64.h"

namespace weft::api {
namespace {

using nlohmann::json;

// What a model's makers write before a text: by a name, or by what the text is for. Names are those that
// sentence-transformers looks for.
constexpr std::string_view kOfQueries[] = {"query"}, kOfDocuments[] = {"document", "passage", "corpus"};

std::string default_prompt(const EmbeddingRule& rule) {
  return rule.default_prompt.empty() ? std::string() : rule.prompts.at(rule.default_prompt);
}

std::string prompt_for(const EmbeddingRule& rule, std::span<const std::string_view> names) {
  for (const std::string_view name : names)
    if (const auto found = rule.prompts.find(std::string(name)); found != rule.prompts.end()) return found->second;
  return default_prompt(rule);
}

std::string named_prompt(const JsonView& body, const EmbeddingRule& rule) {
  constexpr const char* kName = "prompt_name";
  if (!body.has(kName)) return default_prompt(rule);
  const auto found = rule.prompts.find(body[kName].string());
  if (found != rule.prompts.end()) return found->second;
  const std::string names = prompt_names(rule);
  throw ApiError(400,
                 names.empty() ? fmt::format("{}: this model's files have no prompts", kName)
                               : fmt::format("{}: this model's prompts are {}", kName, names),
                 {}, kName);
}

void check_count(int64_t count, const ApiLimits& limits, const char* key) {
  if (count == 0 || count > limits.choices)
    throw ApiError(400, fmt::format("{}: write 1 to {} texts", key, limits.choices), {}, key);
}

void add_text(const std::string& text, const std::string& before, Plan& plan) {
  plan.prompts.push_back(plan.model->tokenizer->encode(before + text, {.add_special = true}));
}

void read_inputs(const JsonView& input, const std::string& before, const ApiLimits& limits, Plan& plan) {
  const int64_t vocab = plan.model->engine->limits().vocab;
  if (input.is_string()) {
    add_text(input.string(), before, plan);
  } else if (!input.is_array()) {
    throw ApiError(400, "input: write a text, a list of texts, a list of tokens, or a list of lists of tokens", {},
                   "input");
  } else if (input.size() > 0 && input.at(int64_t(0)).is_number()) {
    plan.prompts.push_back(read_tokens(input, vocab));
  } else {
    check_count(input.size(), limits, "input");
    for (int64_t i = 0; i < input.size(); ++i) {
      if (input.at(i).is_string())
        add_text(input.at(i).string(), before, plan);
      else
        plan.prompts.push_back(read_tokens(input.at(i), vocab));
    }
  }
}

// A text or a list of texts, each perhaps as {"text": ...}.
std::vector<std::string> read_texts(const JsonView& body, const char* key, const char* other,
                                    const ApiLimits& limits) {
  const char* const there = body.has(key) ? key : other;
  const JsonView value = body.at(there);
  const auto text_of = [](const JsonView& one) { return one.is_object() ? one.at("text").string() : one.string(); };
  if (!value.is_array()) return {text_of(value)};
  check_count(value.size(), limits, there);
  std::vector<std::string> texts;
  for (int64_t i = 0; i < value.size(); ++i) texts.push_back(text_of(value.at(i)));
  return texts;
}

json usage_of(const Plan& plan) {
  size_t tokens = 0;
  for (const auto& prompt : plan.prompts) tokens += prompt.size();
  return {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
}

// Of the angle between them; 0 where one of them has none.
double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double dot = 0, of_a = 0, of_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    dot += double(a[i]) * double(b[i]);
    of_a += double(a[i]) * double(a[i]), of_b += double(b[i]) * double(b[i]);
  }
  return of_a > 0 && of_b > 0 ? dot / std::sqrt(of_a * of_b) : 0;
}

// Models that are trained so say most in a vector's first elements (Kusupati et al., "Matryoshka Representation
// Learning", 2022).
void cut(TextVectors& vectors, int64_t dimensions, bool normalises) {
  const auto size = int64_t(vectors.front().size());
  if (dimensions > size)
    throw ApiError(400, fmt::format("dimensions: this model's vectors have {}", size), {}, "dimensions");
  if (dimensions == 0 || dimensions == size) return;
  for (std::vector<float>& vector : vectors) {
    vector.resize(size_t(dimensions));
    if (normalises) to_unit_length(vector);
  }
}

json embedding_json(const std::vector<float>& vector, size_t index, bool is_base64) {
  const std::string_view bytes = text_of(std::as_bytes(std::span(vector)));
  return {
      {"object", "embedding"}, {"index", index}, {"embedding", is_base64 ? json(base64_of(bytes)) : json(vector)}};
}

// One text, or as many as there are others.
struct Pairs {
  std::vector<std::string> first, second;
  const std::string& first_of(size_t i) const { return first[first.size() == 1 ? 0 : i]; }
};

// Of each pair one, where the model judges pairs; else of all first texts, then of all second ones.
void add_prompts(const JsonView& body, const Pairs& pairs, Plan& plan) {
  const auto refuse = [&](const std::string& why) {
    throw ApiError(400, fmt::format("{} scores texts, and {}", plan.model->name, why), {}, "model");
  };
  if (const size_t labels = plan.model->scores.labels.size(); !plan.model->relevance && labels > 0) {
    if (labels > 1) refuse(fmt::format("has {} labels: a model that judges pairs has one; ask /classify", labels));
    if (plan.model->engine->limits().is_encoder) refuse("its tokenizer.json does not say how it reads two texts");
    refuse("how it reads a query and a document is not known: weft serve --reranker FILE says so");
  }
  if (const Relevance* const relevance = plan.model->relevance.get()) {
    const std::string instruction = body.string_or("instruction", "");
    for (size_t i = 0; i < pairs.second.size(); ++i) {
      Relevance::Prompt prompt =
          relevance->prompt(*plan.model->tokenizer, pairs.first_of(i), pairs.second[i], instruction);
      plan.prompts.push_back(std::move(prompt.ids));
      if (relevance->around_pair()) plan.second_texts.push_back(prompt.second_text);
    }
    return;
  }
  const EmbeddingRule& rule = plan.model->embedding;
  for (const std::string& text : pairs.first) add_text(text, prompt_for(rule, kOfQueries), plan);
  for (const std::string& text : pairs.second) add_text(text, prompt_for(rule, kOfDocuments), plan);
}

void require_scores(const Plan& plan) {
  if (plan.model->scores.labels.empty())
    throw ApiError(400,
                   fmt::format("{} writes texts and has no labels: serve a model that was trained to score texts "
                               "(...ForSequenceClassification)",
                               plan.model->name),
                   {}, "model");
}

// A text's class: the label of the highest score, and all of them as probabilities, or as they are.
json class_json(const ScoreRule& rule, std::vector<float>& scores, size_t index, bool is_activated) {
  const auto best = std::ranges::max_element(scores) - scores.begin();
  if (is_activated) activate(rule.activation, scores);
  return {{"index", index}, {"label", rule.labels[size_t(best)]}, {"probs", scores}, {"num_classes", scores.size()}};
}

// By a score of each pair: the probability that the model says yes to it, or the cosine of its vectors.
void answer_by_scores(const ExchangePointer& exchange, Plan plan, const Pairs& pairs,
                      std::function<json(const Plan& plan, const std::vector<double>& scores)> reply) {
  check_num_answers(plan);
  if (const Relevance* const relevance = plan.model->relevance.get()) {
    std::vector<int32_t> tokens = relevance->tokens();
    return answer_by_logits(exchange, std::move(plan), std::move(tokens),
                            [reply = std::move(reply)](const Plan& done, const TextVectors& logits) -> http::Reply {
                              std::vector<double> scores;
                              for (const std::vector<float>& one : logits)
                                scores.push_back(done.model->relevance->score(one));
                              return {.body = to_json_text(reply(done, scores))};
                            });
  }
  answer_by_vectors(exchange, std::move(plan),
                    [reply = std::move(reply), num_first = pairs.first.size()](
                        const Plan& done, const TextVectors& vectors) -> http::Reply {
                      std::vector<double> scores;
                      for (size_t i = 0; i + num_first < vectors.size(); ++i)
                        scores.push_back(cosine(vectors[num_first == 1 ? 0 : i], vectors[num_first + i]));
                      return {.body = to_json_text(reply(done, scores))};
                    });
}

}  // namespace

void embeddings(Context& context, const http::Request& request, const ExchangePointer& exchange) {
  Plan plan;
  bool is_base64 = false;
  int64_t dimensions = 0;
  read_or_refuse([&] {
    const JsonDocument document = body_of(request, context.limits());
    const JsonView body = document.root();
    context.choose_model(body, plan);
    read_inputs(body.at("input"), named_prompt(body, plan.model->embedding), context.limits(), plan);
    const std::string format = body.string_or("encoding_format", "float");
    if (format != "float" && format != "base64")
      throw ApiError(400, "encoding_format: write float or base64", {}, "encoding_format");
    is_base64 = format == "base64";
    dimensions = body.integer_or("dimensions", 0, 1, INT32_MAX);
    fit_to_context(body, "input", 0, plan);
  });
  check_num_answers(plan);
  answer_by_vectors(exchange, std::move(plan), [=](const Plan& done, TextVectors& vectors) -> http::Reply {
    cut(vectors, dimensions, done.model->embedding.normalises);
    json data = json::array();
    for (size_t i = 0; i < vectors.size(); ++i) data.push_back(embedding_json(vectors[i], i, is_base64));
    return {
        .body = to_json_text(
            {{"object", "list"}, {"data", std::move(data)}, {"model", done.model_name}, {"usage", usage_of(done)}})};
  });
}

// Of pairs of texts, as vLLM has it: one text beside each of others, or as many as these.
void score(Context& context, const http::Request& request, const ExchangePointer& exchange) {
  Plan plan;
  Pairs pairs;
  read_or_refuse([&] {
    const JsonDocument document = body_of(request, context.limits());
    const JsonView body = document.root();
    context.choose_model(body, plan);
    pairs.first = read_texts(body, "text_1", "queries", context.limits());
    pairs.second = read_texts(body, "text_2", "documents", context.limits());
    if (pairs.first.size() != 1 && pairs.first.size() != pairs.second.size())
      throw ApiError(
          400, fmt::format("text_1: write one text, or as many as text_2 has, which are {}", pairs.second.size()), {},
          "text_1");
    add_prompts(body, pairs, plan);
    fit_to_context(body, "text_2", 0, plan);
  });
  answer_by_scores(exchange, std::move(plan), pairs, [](const Plan& done, const std::vector<double>& scores) {
    json data = json::array();
    for (size_t i = 0; i < scores.size(); ++i)
      data.push_back({{"index", i}, {"object", "score"}, {"score", scores[i]}});
    return json{{"object", "list"}, {"data", std::move(data)}, {"model", done.model_name}, {"usage", usage_of(done)}};
  });
}

// The documents by how near they are to the query, as Cohere, Jina and vLLM have it.
void rerank(Context& context, const http::Request& request, const ExchangePointer& exchange) {
  Plan plan;
  Pairs pairs;
  size_t most = 0;
  bool tells_documents = true;
  read_or_refuse([&] {
    const JsonDocument document = body_of(request, context.limits());
    const JsonView body = document.root();
    context.choose_model(body, plan);
    pairs.first = {body.at("query").string()};
    pairs.second = read_texts(body, "documents", "texts", context.limits());
    const auto count = int64_t(pairs.second.size());
    most = size_t(std::min(body.integer_or("top_n", count, 0, INT32_MAX), count));
    if (most == 0) most = pairs.second.size();
    tells_documents = body.boolean_or("return_documents", true);
    add_prompts(body, pairs, plan);
    fit_to_context(body, "documents", 0, plan);
  });
  answer_by_scores(exchange, std::move(plan), pairs, [=](const Plan& done, const std::vector<double>& scores) {
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t i) { return scores[i]; });
    json results = json::array();
    for (const size_t i : std::span(order).first(most)) {
      results.push_back({{"index", i}, {"relevance_score", scores[i]}});
      if (tells_documents) results.back()["document"] = {{"text", pairs.second[i]}};
    }
    return json{{"model", done.model_name}, {"results", std::move(results)}, {"usage", usage_of(done)}};
  });
}

// As vLLM has it, where "use_activation": false asks for scores as they are, such as rewards.
void classify(Context& context, const http::Request& request, const ExchangePointer& exchange) {
  Plan plan;
  bool is_activated = true;
  read_or_refuse([&] {
    const JsonDocument document = body_of(request, context.limits());
    const JsonView body = document.root();
    context.choose_model(body, plan);
    require_scores(plan);
    const bool is_chat = body.has("messages");
    if (is_chat) {
      Conversation conversation = read_conversation(body, request.body, context.limits());
      conversation.asks_for_answer = body.boolean_or("add_generation_prompt", false);
      plan_chat(std::move(conversation), {}, context.limits(), plan);
    } else {
      read_inputs(body.at("input"), "", context.limits(), plan);
    }
    is_activated = body.boolean_or("use_activation", true);
    fit_to_context(body, is_chat ? "messages" : "input", 0, plan);
  });
  check_num_answers(plan);
  std::vector<int32_t> labels(plan.model->scores.labels.size());
  std::iota(labels.begin(), labels.end(), 0);
  answer_by_logits(exchange, std::move(plan), std::move(labels),
                   [=](const Plan& done, TextVectors& scores) -> http::Reply {
                     json data = json::array();
                     for (size_t i = 0; i < scores.size(); ++i)
                       data.push_back(class_json(done.model->scores, scores[i], i, is_activated));
                     return {.body = to_json_text({{"object", "list"},
                                                   {"data", std::move(data)},
                                                   {"model", done.model_name},
                                                   {"usage", usage_of(done)}})};
                   });
}

}  // namespace weft::api
