// HTTP messages: targets are decoded and checked; heads of replies are written.
#include "weft/serve/http/message.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/percent.h"

namespace weft::http {
namespace {

constexpr size_t kMostTargetBytes = 2048;

bool is_plain(std::string_view path) {
  for (const char c : path) {
    if (uint8_t(c) < 0x20 || c == 0x7f || c == '\\') return false;
  }
  for (size_t at = 1; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view segment = path.substr(at, end - at);
    if (segment == "." || segment == "..") return false;
    at = end + 1;
  }
  return true;
}

}  // namespace

std::optional<Target> parse_target(std::string_view target) {
  if (target.empty() || target[0] != '/' || target.size() > kMostTargetBytes) return {};
  if (target.find('#') != std::string_view::npos) return {};
  const size_t mark = std::min(target.find('?'), target.size());
  std::optional<std::string> path = percent_decoded(target.substr(0, mark));
  if (!path || !is_plain(*path)) return {};
  return Target{std::move(*path), std::string(target.substr(std::min(mark + 1, target.size())))};
}

std::string_view Request::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers) {
    if (name == lower_case_name) return value;
  }
  return {};
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 421: return "Misdirected Request";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    default: return "Unknown";
  }
}

std::string reply_head(const Reply& reply, const Headers& more, std::optional<size_t> content_length, bool keep_alive,
                       bool is_chunked) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\ncontent-type: {}\r\n", reply.status, reason_phrase(reply.status),
                                 reply.content_type);
  if (content_length) head += fmt::format("content-length: {}\r\n", *content_length);
  if (is_chunked) head += "transfer-encoding: chunked\r\n";
  if (!keep_alive) head += "connection: close\r\n";
  head += "x-content-type-options: nosniff\r\n";
  for (const Headers* const headers : {&reply.headers, &more})
    for (const auto& [name, value] : *headers) head += fmt::format("{}: {}\r\n", name, value);
  return head + "\r\n";
}

}  // namespace weft::http
