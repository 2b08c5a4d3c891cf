// Parameters: one table of names and ranges for every protocol.
#include "weft/serve/api/parameters.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <random>

#include "weft/base/excerpt.h"
#include "weft/text/utf8.h"

namespace weft::api {
namespace {

constexpr int64_t kMost = int64_t(1) << 31;

uint64_t random_seed() {
  thread_local std::random_device device;
  return uint64_t(device()) << 32 | device();
}

void read_logit_bias(const JsonView& body, const ApiLimits& limits, Plan& plan) {
  if (!body.has("logit_bias")) return;
  const JsonView biases = body["logit_bias"];
  if (biases.size() > limits.logit_biases)
    throw ApiError(400,
                   fmt::format("logit_bias has {} entries and {} are allowed", biases.size(), limits.logit_biases),
                   {}, "logit_bias");
  for (const std::string& key : biases.keys()) {
    int32_t token = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || token < 0 ||
        token >= plan.model->engine->limits().vocab)
      throw ApiError(400, fmt::format("logit_bias: '{}' is no token of this model", excerpt(key, 40)), {},
                     "logit_bias");
    plan.sampling.logit_bias.emplace_back(token, float(biases.at(key).number()));
  }
}

// Each token once, so that a list is never longer than the vocabulary.
std::vector<int32_t> read_token_set(const JsonView& value, const Plan& plan) {
  std::vector<int32_t> tokens = read_tokens(value, plan.model->engine->limits().vocab);
  std::ranges::sort(tokens);
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

void read_allowed_tokens(const JsonView& body, Plan& plan) {
  if (!body.has("allowed_token_ids")) return;
  plan.sampling.allowed_tokens = read_token_set(body["allowed_token_ids"], plan);
  if (plan.sampling.allowed_tokens.empty())
    throw ApiError(400, "allowed_token_ids: without any no answer can be made", {}, "allowed_token_ids");
}

void read_sampling(const JsonView& body, const ApiLimits& limits, Plan& plan) {
  SamplingOptions& s = plan.sampling;
  s.temperature = 1;
  apply(plan.model->sampling, s);
  s.temperature = body.number_or("temperature", s.temperature);
  s.top_k = std::max<int64_t>(body.integer_or("top_k", s.top_k, -1, kMost), 0);  // -1 is off too, as in vLLM
  s.top_p = body.number_or("top_p", s.top_p);
  if (s.top_p == 0) s.top_p = 1e-9;  // some clients mean: only the best token
  s.min_p = body.number_or("min_p", s.min_p);
  s.typical_p = body.number_or("typical_p", 1);
  s.presence_penalty = body.number_or("presence_penalty", 0);
  s.frequency_penalty = body.number_or("frequency_penalty", 0);
  s.repetition_penalty = body.number_or("repetition_penalty", s.repetition_penalty);
  s.seed = body.has("seed") ? uint64_t(body["seed"].integer()) : random_seed();
  read_logit_bias(body, limits, plan);
  read_allowed_tokens(body, plan);
  check_sampling(s);
}

void read_stop_tokens(const JsonView& body, const ApiLimits& limits, Plan& plan) {
  if (!body.boolean_or("ignore_eos", false)) plan.stop_tokens = plan.model->end_tokens;
  if (body.has("stop_token_ids")) {
    const std::vector<int32_t> more = read_token_set(body["stop_token_ids"], plan);
    plan.stop_tokens.insert(plan.stop_tokens.end(), more.begin(), more.end());
  }
  if (!body.has("bad_words")) return;
  const JsonView words = body["bad_words"];
  if (words.size() > limits.logit_biases)
    throw ApiError(400, fmt::format("bad_words has {} entries and {} are allowed", words.size(), limits.logit_biases),
                   {}, "bad_words");
  // A word begins a text or follows a space, and is other tokens then.
  for (int64_t i = 0; i < words.size(); ++i) {
    const std::string word = words.at(i).string();
    for (const std::string& form : {word, " " + word}) {
      std::vector<int32_t> tokens = plan.model->tokenizer->encode(form);
      if (!tokens.empty()) plan.bad_words.push_back(std::move(tokens));
    }
  }
}

// The text that says the form; of a schema, its JSON as the request has it, since the order of its properties is that
// of the answer's.
class FormReader {
 public:
  FormReader(std::string_view request, const ApiLimits& limits) : request_(request), limits_(limits) {}

  using Path = std::vector<const char*>;
  std::string text(const Path& path, const JsonView& form) const { return bounded(path, form.string()); }
  std::string schema(const Path& path, const JsonView& schema) const {
    if (schema.is_string()) return bounded(path, schema.string());
    const nlohmann::ordered_json body = parse_ordered_json(request_, "the request", limits_.json);
    const nlohmann::ordered_json* value = &body;
    for (const char* key : path) value = &value->at(key);
    return bounded(path, value->dump());
  }

 private:
  std::string bounded(const Path& path, std::string text) const {
    if (int64_t(text.size()) > limits_.schema_bytes)
      throw ApiError(
          400,
          fmt::format("{} has {} bytes and {} are allowed", fmt::join(path, "."), text.size(), limits_.schema_bytes),
          {}, fmt::format("{}", fmt::join(path, ".")));
    return text;
  }

  std::string_view request_;
  const ApiLimits& limits_;
};

// Where a protocol says the form: {"type": TYPE, ...}, with the schema below it.
struct FormPlace {
  std::vector<const char*> format, schema;
  bool is_openai = true;  // Anthropic's are schemas only
};
const FormPlace kFormPlaces[] = {
    {{"response_format"}, {"json_schema", "schema"}},
    {{"text", "format"}, {"schema"}},  // of /v1/responses
    {{"output_config", "format"}, {"schema"}, false},
    {{"output_format"}, {"schema"}, false},  // the older name
};

std::optional<OutputForm> form_at(const FormPlace& place, const JsonView& body, const FormReader& reader) {
  using Kind = OutputForm::Kind;
  JsonView value = body;
  for (const char* key : place.format) {
    // Other routes than /v1/responses may know a `text` of another kind.
    if ((place.is_openai && !value.is_object()) || !value.has(key)) return {};
    value = value[key];
  }
  const std::string type = place.is_openai ? value.string_or("type", "text") : value.at("type").string();
  if (type == "json_schema") {
    std::vector<const char*> path = place.format;
    path.insert(path.end(), place.schema.begin(), place.schema.end());
    JsonView schema = value;
    for (const char* key : place.schema) schema = schema.at(key);
    return OutputForm{.kind = Kind::json_schema, .text = reader.schema(path, schema)};
  }
  if (place.is_openai && type == "json_object") return OutputForm{.kind = Kind::json_object};
  if (place.is_openai && type == "text") return {};
  throw ApiError(400,
                 fmt::format("{}.type: write {}", value.path(),
                             place.is_openai ? "text, json_object or json_schema" : "json_schema"),
                 {}, place.format.front());
}

// where: the key that says it.
std::optional<OutputForm> form_of(const JsonView& body, const FormReader& reader, std::string& where) {
  using Kind = OutputForm::Kind;
  for (const FormPlace& place : kFormPlaces) {
    where = fmt::format("{}", fmt::join(place.format, "."));
    if (std::optional<OutputForm> form = form_at(place, body, reader)) return form;
  }
  // vLLM's names, by themselves or below structured_outputs.
  const bool is_nested = body.has("structured_outputs");
  const JsonView from = is_nested ? body["structured_outputs"] : body;
  FormReader::Path path;
  const auto has = [&](const char* plain, const char* guided) {
    path = is_nested ? FormReader::Path{"structured_outputs", plain} : FormReader::Path{guided};
    where = fmt::format("{}", fmt::join(path, "."));
    return from.has(path.back());
  };
  if (is_nested && has("json_object", "") && from["json_object"].boolean())
    return OutputForm{.kind = Kind::json_object};
  if (has("json", "guided_json"))
    return OutputForm{.kind = Kind::json_schema, .text = reader.schema(path, from[path.back()])};
  if (has("regex", "guided_regex"))
    return OutputForm{.kind = Kind::regex, .text = reader.text(path, from[path.back()])};
  if (has("grammar", "guided_grammar"))
    return OutputForm{.kind = Kind::grammar, .text = reader.text(path, from[path.back()])};
  if (has("choice", "guided_choice")) {
    OutputForm form{.kind = Kind::choice};
    const JsonView choices = from[path.back()];
    for (int64_t i = 0; i < choices.size(); ++i) form.choices.push_back(choices.at(i).string());
    return form;
  }
  return {};
}

// Keeps the last tokens of each prompt, as those are what an answer goes on from.
void truncate_prompts(int64_t most, Plan& plan) {
  for (size_t i = 0; i < plan.prompts.size(); ++i) {
    std::vector<int32_t>& tokens = plan.prompts[i];
    if (int64_t(tokens.size()) <= most) continue;
    tokens.erase(tokens.begin(), tokens.end() - most);
    if (!plan.echoes.empty()) plan.echoes[i] = replace_invalid_utf8(plan.model->tokenizer->decode(tokens, true));
  }
}

// Of an encoder: each text loses its end, but for what stands behind it.
void cut_ends(int64_t most, Plan& plan) {
  const bool are_pairs = !plan.second_texts.empty();
  const auto behind = int64_t(are_pairs ? plan.model->relevance->around_pair()->after.size()
                                        : plan.model->tokenizer->after_text().size());
  for (size_t i = 0; i < plan.prompts.size(); ++i) {
    std::vector<int32_t>& tokens = plan.prompts[i];
    if (int64_t(tokens.size()) <= most) continue;
    if (most - behind <= (are_pairs ? plan.second_texts[i] : 0))
      throw ApiError(400,
                     fmt::format("truncate_prompt_tokens: {} tokens leave nothing of {}", most,
                                 are_pairs ? "the second text" : "the text"),
                     {}, "truncate_prompt_tokens");
    tokens.erase(tokens.begin() + (most - behind), tokens.end() - behind);
  }
}

}  // namespace

std::vector<int32_t> read_tokens(const JsonView& value, int64_t vocab) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < value.size(); ++i) tokens.push_back(int32_t(value.at(i).integer(0, vocab - 1)));
  return tokens;
}

void read_stops(const JsonView& body, const char* key, const ApiLimits& limits, Plan& plan) {
  if (!body.has(key)) return;
  const JsonView stop = body[key];
  const auto add = [&](const std::string& text) {
    if (int64_t(text.size()) > limits.stop_bytes || int64_t(plan.stops.texts.size()) >= limits.stops)
      throw ApiError(
          400, fmt::format("{}: at most {} texts of {} bytes are allowed", key, limits.stops, limits.stop_bytes), {},
          key);
    plan.stops.texts.push_back(text);
  };
  if (stop.is_string()) return add(stop.string());
  for (int64_t i = 0; i < stop.size(); ++i) add(stop.at(i).string());
}

void read_parameters(const JsonView& body, std::string_view request, const ApiLimits& limits, Plan& plan) {
  read_sampling(body, limits, plan);
  read_stops(body, "stop", limits, plan);
  read_stop_tokens(body, limits, plan);
  plan.stops.is_included = body.boolean_or("include_stop_str_in_output", false);
  plan.text.keep_special = !body.boolean_or("skip_special_tokens", true);
  plan.min_tokens = body.integer_or("min_tokens", 0, 0, kMost);
  plan.priority = int32_t(body.integer_or("priority", 0, INT32_MIN, INT32_MAX));
  if (body["user"].is_string()) plan.user = body["user"].string();
  plan.n = body.integer_or("n", 1, 1, limits.n);
  plan.best_of = plan.n;
  plan.stream = body.boolean_or("stream", false);
  if (body.has("stream_options")) {
    const JsonView options = body["stream_options"];
    plan.stream_usage = options.boolean_or("include_usage", false);
    plan.usage_in_chunks = plan.stream_usage && options.boolean_or("continuous_usage_stats", false);
  }
  plan.form = form_of(body, FormReader(request, limits), plan.form_key);
  if (plan.form && !plan.model->constraints)
    throw ApiError(400, "this server does not offer output of a given form (response_format, structured_outputs)",
                   "unsupported", plan.form_key);
}

void fit_to_context(const JsonView& body, const char* field, std::optional<int64_t> asked, Plan& plan) {
  const EngineLimits& limits = plan.model->engine->limits();
  const int64_t context = limits.context;
  if (body.has("truncate_prompt_tokens")) {
    const int64_t most = body["truncate_prompt_tokens"].integer(-1, kMost);
    if (most == 0)
      throw ApiError(400, "truncate_prompt_tokens: write -1, or at least 1", {}, "truncate_prompt_tokens");
    const int64_t fitting = std::max<int64_t>(1, std::min(limits.most_prompt(), context - asked.value_or(1)));
    const auto truncate = limits.is_encoder ? cut_ends : truncate_prompts;
    truncate(most < 0 ? fitting : most, plan);
  }
  int64_t longest = 0;
  for (const auto& prompt : plan.prompts) longest = std::max(longest, int64_t(prompt.size()));
  if (longest > limits.most_prompt())
    throw ApiError(
        400,
        fmt::format("This model's maximum context length is {} tokens. However, your {} resulted in {} tokens: "
                    "write less",
                    context, field, longest),
        "context_length_exceeded", field);
  if (asked && plan.min_tokens > *asked)
    throw ApiError(400, fmt::format("min_tokens: {} are more than max_tokens, {}", plan.min_tokens, *asked), {},
                   "min_tokens");
  plan.max_tokens = std::min(asked.value_or(context), context - longest);
  plan.min_tokens = std::min(plan.min_tokens, plan.max_tokens);
}

void read_prompt_logprobs(const JsonView& body, const ApiLimits& limits, Plan& plan) {
  if (!body.has("prompt_logprobs")) return;
  plan.prompt_logprobs = int32_t(body["prompt_logprobs"].integer(0, limits.top_logprobs));
  if (plan.stream)
    throw ApiError(400, "prompt_logprobs: streams do not tell them; leave out stream", {}, "prompt_logprobs");
}

void read_told_tokens(const JsonView& body, Plan& plan) {
  plan.tells_token_ids = body.boolean_or("return_token_ids", false);
  if (body.boolean_or("return_tokens_as_token_ids", false)) plan.token_names = TokenNames::ids;
}

}  // namespace weft::api
