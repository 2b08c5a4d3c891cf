// ApiError: statuses and their types in both dialects.
#include "weft/serve/api/api_error.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/base/json.h"
#include "weft/serve/engine.h"

namespace weft::api {
namespace {

std::string_view openai_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string_view anthropic_type(int status) {
  switch (status) {
    case 413: return "request_too_large";
    case 503: return "overloaded_error";
    default: return status >= 500 ? "api_error" : openai_type(status);
  }
}

nlohmann::json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::json(nullptr) : nlohmann::json(text);
}

}  // namespace

std::string error_json(const ApiError& error, Dialect dialect) {
  if (dialect == Dialect::anthropic)
    return to_json_text(
        {{"type", "error"}, {"error", {{"type", anthropic_type(error.status())}, {"message", error.what()}}}});
  return to_json_text({{"error",
                        {{"message", error.what()},
                         {"type", openai_type(error.status())},
                         {"param", text_or_null(error.param())},
                         {"code", text_or_null(error.code())}}}});
}

http::Reply error_reply(const ApiError& error, Dialect dialect) {
  http::Reply reply{.status = error.status(), .body = error_json(error, dialect)};
  const double retry_after_s = error.status() == 503 ? std::max(error.retry_after_s, 1.0) : error.retry_after_s;
  if (retry_after_s > 0)
    reply.headers.emplace_back("retry-after", fmt::format("{}", int64_t(std::ceil(retry_after_s))));
  if (!error.allowed_methods.empty()) reply.headers.emplace_back("allow", error.allowed_methods);
  if (error.status() == 401) reply.headers.emplace_back("www-authenticate", "Basic realm=\"weft\", Bearer");
  return reply;
}

ApiError to_api_error(const std::exception& error) {
  if (const auto* known = dynamic_cast<const ApiError*>(&error)) return *known;
  if (const auto* busy = dynamic_cast<const Busy*>(&error)) {
    ApiError result(429, busy->what(), "rate_limit_exceeded");
    result.retry_after_s = busy->retry_after_s();
    return result;
  }
  if (dynamic_cast<const Unsupported*>(&error)) return {501, error.what(), "unsupported"};
  if (dynamic_cast<const UsageError*>(&error)) return {400, error.what()};
  fmt::print(stderr, "weft: a request failed: {}\n", error.what());
  return {500, "the server could not answer this request; its log may say why", "internal_error"};
}

ApiError to_api_error(const Finish& finish) {
  if (finish.is_refusal) return {400, finish.error};
  if (finish.retry_after_s == 0) return {500, finish.error, "engine_error"};
  ApiError result(503, finish.error, "model_unavailable");
  result.retry_after_s = finish.retry_after_s;
  return result;
}

}  // namespace weft::api
