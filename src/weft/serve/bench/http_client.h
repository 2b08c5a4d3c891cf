// HttpClient: a plain HTTP/1.1 client, one blocking connection, for measuring servers and for tests.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/base/error.h"

namespace weft::bench {

// "http://HOST:PORT/BASE", taken apart.
struct Url {
  std::string host, path;  // without the brackets of IPv6; without a '/' at its end
  uint16_t port = 80;
};
// Throws UsageError for anything but http.
Url parse_url(std::string_view text);

struct HttpResult {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;                                          // of a stream: empty
  std::string_view header(std::string_view lower_case_name) const;
};

// Throws Error when the server cannot be reached, breaks the connection, lets a timeout pass (of connecting too),
// does not speak HTTP, or sends lines of more than 64 KiB, 256 headers or a body or event of more than 256 MiB.
class HttpClient {
 public:
  // The server closed the connection.
  class Closed final : public Error {
   public:
    using Error::Error;
  };

  HttpClient(const std::string& host, uint16_t port, std::chrono::milliseconds timeout = std::chrono::minutes(10));
  ~HttpClient();
  HttpClient(HttpClient&& other) noexcept;
  HttpClient& operator=(HttpClient&&) = delete;

  using Headers = std::vector<std::pair<std::string, std::string>>;
  HttpResult request(std::string_view method, std::string_view path, std::string_view body = {},
                     const Headers& headers = {});

  // The same in steps, for replies that are streamed: send, read_head, then next_event until it gives nothing.
  void send(std::string_view method, std::string_view path, std::string_view body = {}, const Headers& headers = {});
  HttpResult read_head();
  // The data of the next server-sent event.
  std::optional<std::string> next_event();
  std::string read_body();

  void send_raw(std::string_view bytes);
  std::string read_raw();  // until the server closes
  bool is_closed_by_server(std::chrono::milliseconds patience);
  void close();
  int fd() const { return fd_; }

 private:
  bool fill();  // reads more; false at the end
  std::optional<std::string> read_chunk();
  std::string read_line();
  std::string read_bytes(size_t count);
  void require_held(size_t bytes) const;  // that so many may be held

  std::string host_;
  int fd_ = -1;
  std::string in_;      // received, not yet used
  std::string events_;  // decoded body of a stream
  bool is_chunked_ = false, is_complete_ = false;
  std::optional<size_t> length_;
};

}  // namespace weft::bench
