// Api: the routes of the server, who may use them, and what every request passes before its own handler.
#pragma once
#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "weft/serve/api/api_keys.h"
#include "weft/serve/api/metrics.h"
#include "weft/serve/api/parameters.h"
#include "weft/serve/api/served_model.h"
#include "weft/serve/http/handler.h"

namespace weft::api {

struct ApiOptions {
  ApiKeys keys;
  // Sites, as "https://chat.example.org", whose pages may send requests beside our own; "*": any page.
  std::vector<std::string> allowed_origins;
  bool only_local_hosts =
      true;  // refuses requests whose Host is not this machine: a page that a browser was lured to
  ApiLimits limits;
};

// What handlers of routes work with.
class Context {
 public:
  explicit Context(ApiLimits limits) : limits_(limits) {}
  void set_models(std::vector<ServedModel> models) { models_ = std::move(models); }  // before any handler is called
  const std::vector<ServedModel>& models() const { return models_; }
  const ApiLimits& limits() const { return limits_; }
  Metrics& metrics() { return metrics_; }
  const Metrics& metrics() const { return metrics_; }
  int64_t started() const { return started_; }
  // Sets the plan's model by the field "model": a model's name, an adapter's, or the first model when it is absent.
  // Throws ApiError 404.
  void choose_model(const JsonView& body, Plan& plan) const;

 private:
  std::vector<ServedModel> models_;
  const ApiLimits limits_;
  const int64_t started_ = std::time(nullptr);
  Metrics metrics_;
};

using ExchangePointer = std::shared_ptr<http::Exchange>;
using RouteHandler = void (*)(Context&, const http::Request&, const ExchangePointer&);

// One way in. What is not in the table does not exist.
struct Route {
  struct Traits {
    bool is_public = false;    // needs no key
    bool is_quick = false;     // answered on the network thread, whatever the load
    bool needs_models = true;  // refused until they are there
    bool generates = false;    // refused early when the engine's queue is full
    Dialect dialect = Dialect::openai;
  };
  std::string_view method, path;  // a path that ends in '/' has one more segment or several: a model's name
  RouteHandler handler;
  Traits traits;
};
std::span<const Route> routes();

class Api : public http::Handler {
 public:
  // Says that it lives, and that it is not ready for anything else.
  explicit Api(ApiOptions options);

  // Once: from now on it answers for these models.
  void serve(std::vector<ServedModel> models);
  // /ready says no, and requests that generate get 503.
  void begin_drain() { state_ = State::draining; }

  http::Headers headers_of_replies(const http::Request& head) const override;
  std::optional<http::Reply> answer_at_once(const http::Request& head) override;
  void handle(http::Request request, std::shared_ptr<http::Exchange> exchange) override;
  http::Reply refusal(int status, std::string_view message, std::string_view path) override;

 private:
  enum class State : uint8_t { starting, ready, draining };
  const Route& admit(const http::Request& head) const;  // or throws ApiError
  bool allows_origin(std::string_view origin) const;
  bool is_preflight(const http::Request& head) const;
  void check_origin(const http::Request& head) const;
  void check_host(const http::Request& head) const;
  void check_room() const;
  void check_state(const Route& route) const;

  ApiOptions options_;
  Context context_;
  std::atomic<State> state_{State::starting};
};

}  // namespace weft::api
