// What HTTP says, as plain values: a request whose parts were checked, and a reply.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::http {

// The path of a request, decoded once; routing and authentication look at nothing else.
struct Target {
  std::string path;   // "/v1/models", without a "." or ".." segment; an empty one makes it another path
  std::string query;  // as sent, without the '?'
};

// Nothing unless it is an absolute path of at most 2 KiB whose segments are plain: no control characters, no
// backslash, no "." or "..", also not when written as %2e.
std::optional<Target> parse_target(std::string_view target);

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;
  Target target;
  Headers headers;  // names in lower case
  std::string body;

  // The value of a header; empty when it is absent. Of several, the first.
  std::string_view header(std::string_view lower_case_name) const;
};

struct Reply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  Headers headers;            // more of them
  bool is_head_only = false;  // to HEAD: the body is told of, not sent
};

std::string_view reason_phrase(int status);

// The head of a reply up to the empty line. more: headers beside the reply's own. content_length: nullopt for one
// that is streamed in chunks.
std::string reply_head(const Reply& reply, const Headers& more, std::optional<size_t> content_length, bool keep_alive,
                       bool is_chunked);

}  // namespace weft::http
