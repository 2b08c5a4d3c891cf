// ApiError: what a client is told when its request is refused; as OpenAI's error object, or Anthropic's.
#pragma once
#include <string>

#include "weft/base/error.h"
#include "weft/serve/http/message.h"
#include "weft/serve/request.h"

namespace weft::api {

enum class Dialect : uint8_t { openai, anthropic };

class ApiError : public Error {
 public:
  ApiError(int status, std::string message, std::string code = {}, std::string param = {})
      : Error(std::move(message)), status_(status), code_(std::move(code)), param_(std::move(param)) {}
  int status() const { return status_; }
  const std::string& code() const { return code_; }    // "model_not_found", ...; may be empty
  const std::string& param() const { return param_; }  // the field that is wrong; may be empty
  double retry_after_s = 0;                            // of 429 and 503
  std::string allowed_methods;                         // of 405

 private:
  int status_;
  std::string code_, param_;
};

// {"error": {"message", "type", "param", "code"}}, or {"type": "error", "error": {"type", "message"}}
std::string error_json(const ApiError& error, Dialect dialect);
http::Reply error_reply(const ApiError& error, Dialect dialect);

// What an exception means to the client: its own mistakes are named, ours are not explained.
ApiError to_api_error(const std::exception& error);
// Of a request that ended with an error: 400 where it is its own, 503 where it may pass, else 500.
ApiError to_api_error(const Finish& finish);

}  // namespace weft::api
