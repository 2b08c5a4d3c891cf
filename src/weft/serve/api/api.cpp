// Api: one parsed path decides the route, and with it whether a key is needed.
#include "weft/serve/api/api.h"

#include <algorithm>

#include "weft/base/excerpt.h"
#include "weft/serve/api/handlers.h"

namespace weft::api {
namespace {

// Answered by Api itself, which knows the state.
void health(Context&, const http::Request&, const ExchangePointer& exchange) { exchange->reply({.body = "{}"}); }
constexpr std::string_view kReady = "/ready";
constexpr double kRetryAfter = 1;

constexpr Route kRoutes[] = {
    {"GET", "/health", health, {.is_public = true, .is_quick = true, .needs_models = false}},
    {"GET", kReady, health, {.is_quick = true}},
    {"GET", "/metrics", show_metrics, {.is_quick = true}},
    {"GET", "/version", show_version, {.is_quick = true, .needs_models = false}},
    {"GET", "/", show_page, {.is_quick = true, .needs_models = false}},
    {"GET", "/v1/models", list_models, {.is_quick = true}},
    {"GET", "/v1/models/", show_model, {.is_quick = true}},
    {"POST", "/v1/chat/completions", chat_completions, {.generates = true}},
    {"POST", "/v1/completions", completions, {.generates = true}},
    {"POST", "/v1/responses", responses, {.generates = true}},
    {"POST", "/v1/embeddings", embeddings, {.generates = true}},
    {"POST", "/v1/score", score, {.generates = true}},
    {"POST", "/score", score, {.generates = true}},
    {"POST", "/v1/rerank", rerank, {.generates = true}},
    {"POST", "/v2/rerank", rerank, {.generates = true}},
    {"POST", "/rerank", rerank, {.generates = true}},
    {"POST", "/v1/classify", classify, {.generates = true}},
    {"POST", "/classify", classify, {.generates = true}},
    {"POST", "/v1/messages", messages, {.generates = true, .dialect = Dialect::anthropic}},
    {"POST", "/v1/messages/count_tokens", count_tokens, {.dialect = Dialect::anthropic}},
    {"POST", "/v1/load_lora_adapter", load_adapter, {}},
    {"POST", "/v1/unload_lora_adapter", unload_adapter, {}},
    {"POST", "/tokenize", tokenize, {}},
    {"POST", "/detokenize", detokenize, {}},
};

bool matches(const Route& route, std::string_view path) {
  const bool takes_more = route.path.size() > 1 && route.path.ends_with('/');
  return takes_more ? path.starts_with(route.path) && path.size() > route.path.size() : path == route.path;
}

const Route* find_path(std::string_view path) {
  const auto it =
      std::find_if(std::begin(kRoutes), std::end(kRoutes), [&](const Route& route) { return matches(route, path); });
  return it == std::end(kRoutes) ? nullptr : it;
}

Dialect dialect_of(std::string_view path) {
  const Route* const route = find_path(path);
  return route ? route->traits.dialect : Dialect::openai;
}

// An answer that is there at once.
class ImmediateExchange : public http::Exchange {
 public:
  void reply(http::Reply reply) override { reply_ = std::move(reply); }
  void begin_stream(http::Reply) override {}
  void write(std::string_view) override {}
  void end_stream() override {}
  void post(std::function<void()> work) override { work(); }
  void when_gone(std::function<void()>) override {}
  http::Reply take() { return std::move(reply_); }

 private:
  http::Reply reply_;
};

}  // namespace

std::span<const Route> routes() { return kRoutes; }

void Context::choose_model(const JsonView& body, Plan& plan) const {
  const std::string asked = body.string_or("model", "");
  plan.model_name = asked.empty() ? models_.front().name : asked;
  for (const ServedModel& model : models_) {
    if (plan.model_name == model.name) {
      plan.model = &model;
      return;
    }
    const std::vector<std::string> adapters = model.engine->adapters();
    if (std::find(adapters.begin(), adapters.end(), plan.model_name) == adapters.end()) continue;
    plan.model = &model;
    plan.adapter = plan.model_name;
    return;
  }
  throw ApiError(404, fmt::format("The model `{}` does not exist; see /v1/models", excerpt(asked, 80)),
                 "model_not_found", "model");
}

JsonDocument body_of(const http::Request& request, const ApiLimits& limits) {
  return JsonDocument::parse(request.body, "the request", limits.json);
}

void read_or_refuse(FunctionRef<void()> read) {
  try {
    read();
  } catch (const ApiError&) {
    throw;
  } catch (const JsonValueError& e) {
    throw ApiError(400, e.what(), {}, e.path());
  } catch (const SamplingError& e) {
    throw ApiError(400, e.what(), {}, e.option());
  } catch (const Error& e) {
    throw ApiError(400, e.what());
  }
}

Api::Api(ApiOptions options) : options_(std::move(options)), context_(options_.limits) {}

void Api::serve(std::vector<ServedModel> models) {
  check(!models.empty(), "an API needs a model");
  check(state_ == State::starting, "an API serves its models once");
  context_.set_models(std::move(models));
  state_ = State::ready;
}

bool Api::allows_origin(std::string_view origin) const {
  const auto& allowed = options_.allowed_origins;
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](const std::string& one) { return one == "*" || one == origin; });
}

// A browser says which page a request comes from: our own may send some, and those of sites that are allowed to.
void Api::check_origin(const http::Request& head) const {
  const std::string_view origin = head.header("origin");
  const size_t host = origin.find("://");
  if (origin.empty() || allows_origin(origin)) return;
  if (host != std::string_view::npos && origin.substr(host + 3) == head.header("host")) return;
  throw ApiError(403, "requests from pages of other sites are refused, unless --allowed-origins names the site");
}

// Before a page's own request a browser asks whether it may be sent, without a key. Source: Fetch Standard, CORS
// protocol.
bool Api::is_preflight(const http::Request& head) const {
  return head.method == "OPTIONS" && !head.header("access-control-request-method").empty() &&
         allows_origin(head.header("origin"));
}

http::Headers Api::headers_of_replies(const http::Request& head) const {
  if (options_.allowed_origins.empty()) return {};
  const std::string_view origin = head.header("origin");
  http::Headers headers{{"vary", "Origin"}};
  if (origin.empty() || !allows_origin(origin)) return headers;
  headers.emplace_back("access-control-allow-origin", origin);
  if (!is_preflight(head)) return headers;
  headers.emplace_back("access-control-allow-methods", "GET, POST");
  // Whatever it asks for: headers that nobody reads harm nobody.
  if (const std::string_view asked = head.header("access-control-request-headers"); !asked.empty())
    headers.emplace_back("access-control-allow-headers", asked);
  headers.emplace_back("access-control-max-age", "600");
  return headers;
}

void Api::check_host(const http::Request& head) const {
  if (!options_.only_local_hosts) return;
  std::string host(head.header("host"));
  if (const size_t colon = host.rfind(':'); colon != std::string::npos && !host.ends_with(']')) host.resize(colon);
  std::ranges::transform(host, host.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  if (!host.empty() && host != "localhost" && host != "127.0.0.1" && host != "[::1]")
    throw ApiError(421, "this server answers to localhost only");
}

void Api::check_state(const Route& route) const {
  const State state = state_;
  const bool needs_ready = route.traits.generates || route.path == kReady;
  if (!route.traits.needs_models || state == State::ready || (state == State::draining && !needs_ready)) return;
  ApiError error(503,
                 state == State::starting ? "the server is not ready: it reads its models; try again soon"
                                          : "the server is not ready: it is shutting down; try again soon",
                 "not_ready");
  error.retry_after_s = kRetryAfter;
  throw error;
}

void Api::check_room() const {
  if (context_.models().size() > 1) return;  // which one is meant stands in the body
  const Engine& engine = *context_.models().front().engine;
  const EngineStats stats = engine.stats();
  if (stats.running + stats.waiting < engine.limits().max_open()) return;
  ApiError error(429, "the queue is full; try again soon", "rate_limit_exceeded");
  error.retry_after_s = kRetryAfter;
  throw error;
}

const Route& Api::admit(const http::Request& head) const {
  check_host(head);
  check_origin(head);
  const Route* const route = find_path(head.target.path);
  if (!(route && route->traits.is_public) && !options_.keys.admits(head))
    throw ApiError(401, "no valid API key was given: send one as 'Authorization: Bearer KEY'", "invalid_api_key");
  if (!route) throw ApiError(404, "there is no such route", "unknown_route");
  const bool is_head = head.method == "HEAD" && route->method == "GET";
  if (route->method != head.method && !is_head) {
    ApiError error(405, fmt::format("this route takes {} only", route->method), "method_not_allowed");
    error.allowed_methods = route->method == "GET" ? "GET, HEAD" : route->method;
    throw error;
  }
  const std::string_view encoding = head.header("content-encoding");
  if (!encoding.empty() && encoding != "identity")
    throw ApiError(415, fmt::format("the body is encoded as '{}': send it plain", excerpt(encoding, 40)));
  return *route;
}

std::optional<http::Reply> Api::answer_at_once(const http::Request& head) {
  try {
    if (is_preflight(head)) return check_host(head), http::Reply{.content_type = "text/plain"};
    const Route& route = admit(head);
    check_state(route);
    if (route.traits.generates) check_room();
    if (!route.traits.is_quick) return {};
    const auto exchange = std::make_shared<ImmediateExchange>();
    route.handler(context_, head, exchange);
    return exchange->take();
  } catch (const std::exception& e) {
    return error_reply(to_api_error(e), dialect_of(head.target.path));
  }
}

void Api::handle(http::Request request, std::shared_ptr<http::Exchange> exchange) {
  const Dialect dialect = dialect_of(request.target.path);
  try {
    admit(request).handler(context_, request, exchange);
  } catch (const std::exception& e) {
    exchange->reply(error_reply(to_api_error(e), dialect));
  }
}

http::Reply Api::refusal(int status, std::string_view message, std::string_view path) {
  return error_reply(ApiError(status, std::string(message)), dialect_of(path));
}

}  // namespace weft::api
