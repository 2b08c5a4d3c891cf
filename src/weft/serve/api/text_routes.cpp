// /v1/models, /tokenize, /detokenize, /v1/embeddings, /metrics, /version: what needs no generation of text.
#include <mutex>
#include <nlohmann/json.hpp>

#include "weft/base/version.h"
#include "weft/serve/api/chat_prompt.h"
#include "weft/serve/api/handlers.h"
#include "weft/serve/api/openai_json.h"
#include "weft/serve/unit_length.h"
#include "weft/text/base64.h"
#include "weft/text/utf8.h"

namespace weft::api {
namespace {

using nlohmann::json;

json model_json(const Context& context, const ServedModel& model, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", context.started()},
          {"owned_by", "weft"},
          {"root", model.name},
          {"parent", name == model.name ? json(nullptr) : json(model.name)},
          {"max_model_len", model.engine->limits().context}};
}

json all_models(const Context& context) {
  json models = json::array();
  for (const ServedModel& model : context.models()) {
    models.push_back(model_json(context, model, model.name));
    for (const std::string& adapter : model.engine->adapters()) models.push_back(model_json(context, model, adapter));
  }
  return models;
}

// Answers when all texts have their vectors; the engine's thread and the handler's both come here.
class EmbeddingJob {
 public:
  // dimensions: how much of each vector the client wants; 0: all
  EmbeddingJob(ExchangePointer exchange, Plan plan, bool is_base64, int64_t dimensions)
      : exchange_(std::move(exchange)),
        plan_(std::move(plan)),
        is_base64_(is_base64),
        dimensions_(dimensions),
        vectors_(plan_.prompts.size()) {
    for (const auto& prompt : plan_.prompts) num_tokens_ += int64_t(prompt.size());
  }

  void start(const std::shared_ptr<EmbeddingJob>& self) {
    std::vector<RequestId> ids;
    for (size_t i = 0; i < plan_.prompts.size(); ++i) {
      Request request;
      request.kind = Request::Kind::embed;
      request.prompt = plan_.prompts[i];
      request.adapter = plan_.adapter;
      try {
        ids.push_back(plan_.model->engine->submit(std::move(request), std::make_unique<Sink>(self, i)));
      } catch (...) {
        for (const RequestId id : ids) plan_.model->engine->cancel(id);
        const std::lock_guard lock(mutex_);
        is_over_ = true;
        throw;
      }
    }
    exchange_->when_gone([engine = plan_.model->engine, ids] {
      for (const RequestId id : ids) engine->cancel(id);
    });
  }

 private:
  class Sink : public RequestSink {
   public:
    Sink(std::shared_ptr<EmbeddingJob> job, size_t index) : job_(std::move(job)), index_(index) {}
    void on_tokens(std::span<const TokenEvent>) override {}
    void on_embedding(std::span<const float> vector) override {
      job_->vectors_[index_].assign(vector.begin(), vector.end());
    }
    void on_finish(const Finish& finish) override { job_->finish(finish); }

   private:
    const std::shared_ptr<EmbeddingJob> job_;
    const size_t index_;
  };

  void finish(const Finish& finish) {
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    const bool is_fine = finish.reason == FinishReason::stop || finish.reason == FinishReason::length;
    is_over_ = !is_fine || ++num_done_ == vectors_.size();
    if (!is_fine) return exchange_->reply(error_reply(to_api_error(finish), Dialect::openai));
    if (!is_over_) return;
    const auto size = int64_t(vectors_.front().size());
    if (dimensions_ > size) {
      const ApiError error(400, fmt::format("dimensions: this model's vectors have {}", size), {}, "dimensions");
      return exchange_->reply(error_reply(error, Dialect::openai));
    }
    if (dimensions_ > 0 && dimensions_ < size) cut();
    exchange_->reply({.body = reply_json()});
  }

  // Models that are trained so say most in a vector's first elements (Kusupati et al., "Matryoshka Representation
  // Learning", 2022).
  void cut() {
    for (std::vector<float>& vector : vectors_) {
      vector.resize(size_t(dimensions_));
      to_unit_length(vector);
    }
  }

  std::string reply_json() const {
    json data = json::array();
    for (size_t i = 0; i < vectors_.size(); ++i) {
      const std::string_view bytes = text_of(std::as_bytes(std::span(vectors_[i])));
      data.push_back({{"object", "embedding"},
                      {"index", i},
                      {"embedding", is_base64_ ? json(base64_of(bytes)) : json(vectors_[i])}});
    }
    return to_json_text({{"object", "list"},
                         {"data", std::move(data)},
                         {"model", plan_.model_name},
                         {"usage", {{"prompt_tokens", num_tokens_}, {"total_tokens", num_tokens_}}}});
  }

  const ExchangePointer exchange_;
  const Plan plan_;
  const bool is_base64_;
  const int64_t dimensions_;
  std::vector<std::vector<float>> vectors_;
  int64_t num_tokens_ = 0;
  std::mutex mutex_;
  size_t num_done_ = 0;
  bool is_over_ = false;
};

void read_inputs(const JsonView& input, const ApiLimits& limits, Plan& plan) {
  const int64_t vocab = plan.model->engine->limits().vocab;
  const auto encode = [&](const JsonView& text) {
    return plan.model->tokenizer->encode(text.string(), {.add_special = true});
  };
  if (input.is_string()) {
    plan.prompts.push_back(encode(input));
  } else if (!input.is_array()) {
    throw ApiError(400, "input: write a text, a list of texts, a list of tokens, or a list of lists of tokens", {},
                   "input");
  } else if (input.size() > 0 && input.at(int64_t(0)).is_number()) {
    plan.prompts.push_back(read_tokens(input, vocab));
  } else {
    if (input.size() == 0 || input.size() > limits.choices)
      throw ApiError(400, fmt::format("input: write 1 to {} texts", limits.choices), {}, "input");
    for (int64_t i = 0; i < input.size(); ++i)
      plan.prompts.push_back(input.at(i).is_string() ? encode(input.at(i)) : read_tokens(input.at(i), vocab));
  }
}

}  // namespace

void list_models(Context& context, const http::Request&, const ExchangePointer& exchange) {
  exchange->reply({.body = to_json_text({{"object", "list"}, {"data", all_models(context)}})});
}

void show_model(Context& context, const http::Request& request, const ExchangePointer& exchange) {
  const std::string name = request.target.path.substr(std::string_view("/v1/models/").size());
  for (const json& model : all_models(context)) {
    if (model["id"] == name) return exchange->reply({.body = to_json_text(model)});
  }
  throw ApiError(404, "The model does not exist; see /v1/models", "model_not_found", "model");
}

void show_metrics(Context& context, const http::Request&, const ExchangePointer& exchange) {
  std::vector<std::pair<std::string, const Engine*>> engines;
  for (const ServedModel& model : context.models()) engines.emplace_back(model.name, model.engine);
  exchange->reply(
      {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = context.metrics().render(engines)});
}

void show_version(Context&, const http::Request&, const ExchangePointer& exchange) {
  exchange->reply({.body = json{{"version", version()}}.dump()});
}

void tokenize(Context& context, const http::Request& request, const ExchangePointer& exchange) {
  Plan plan;
  json reply;
  read_or_refuse([&] {
    const JsonDocument document = body_of(request, context.limits());
    const JsonView body = document.root();
    context.choose_model(body, plan);
    if (body.has("messages")) {
      plan_chat(read_conversation(body, request.body, context.limits()), {}, context.limits(), plan);
    } else {
      const std::string text = body.has("prompt") ? body["prompt"].string() : body.at("content").string();
      plan.prompts = {
          plan.model->tokenizer->encode(text, {.add_special = body.boolean_or("add_special_tokens", true)})};
    }
    const auto& tokens = plan.prompts.front();
    reply = {{"count", tokens.size()}, {"max_model_len", plan.model->engine->limits().context}, {"tokens", tokens}};
    if (body.boolean_or("return_token_strs", false)) {
      reply["token_strs"] = json::array();
      for (const int32_t token : tokens)
        reply["token_strs"].push_back(replace_invalid_utf8(plan.model->tokenizer->spelling(token)));
    }
  });
  exchange->reply({.body = to_json_text(reply)});
}

void detokenize(Context& context, const http::Request& request, const ExchangePointer& exchange) {
  std::string text;
  read_or_refuse([&] {
    const JsonDocument document = body_of(request, context.limits());
    Plan plan;
    context.choose_model(document.root(), plan);
    const Tokenizer& tokenizer = *plan.model->tokenizer;
    text = tokenizer.decode(read_tokens(document.root().at("tokens"), tokenizer.vocab_size()), true);
  });
  exchange->reply({.body = to_json_text({{"prompt", replace_invalid_utf8(text)}})});
}

void embeddings(Context& context, const http::Request& request, const ExchangePointer& exchange) {
  Plan plan;
  bool is_base64 = false;
  int64_t dimensions = 0;
  read_or_refuse([&] {
    const JsonDocument document = body_of(request, context.limits());
    const JsonView body = document.root();
    context.choose_model(body, plan);
    read_inputs(body.at("input"), context.limits(), plan);
    const std::string format = body.string_or("encoding_format", "float");
    if (format != "float" && format != "base64")
      throw ApiError(400, "encoding_format: write float or base64", {}, "encoding_format");
    is_base64 = format == "base64";
    dimensions = body.integer_or("dimensions", 0, 1, INT32_MAX);
    fit_to_context(body, "input", 0, plan);
  });
  check_num_answers(plan);
  const auto job = std::make_shared<EmbeddingJob>(exchange, std::move(plan), is_base64, dimensions);
  job->start(job);
}

}  // namespace weft::api
