// /v1/models, /tokenize, /detokenize, /metrics, /version: what needs no engine.
#include <nlohmann/json.hpp>

#include "weft/base/version.h"
#include "weft/serve/api/chat_prompt.h"
#include "weft/serve/api/handlers.h"
#include "weft/serve/api/openai_json.h"
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

}  // namespace weft::api
