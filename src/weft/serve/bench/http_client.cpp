// HttpClient: POSIX sockets.
#include "weft/serve/bench/http_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "weft/base/authority.h"
#include "weft/base/excerpt.h"

namespace weft::bench {
namespace {

constexpr size_t kMostLine = 64 << 10, kMostHeaders = 256, kMostHeld = 256 << 20;

}  // namespace

Url parse_url(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  if (!text.starts_with(kScheme)) throw UsageError("{}: write http://HOST:PORT", text);
  text.remove_prefix(kScheme.size());
  const size_t slash = std::min(text.find('/'), text.size());
  std::string_view host = text.substr(0, slash);
  Url url{.path = std::string(text.substr(slash))};
  while (url.path.ends_with('/')) url.path.pop_back();
  if (const size_t colon = host.rfind(':'); colon != std::string_view::npos && !host.ends_with(']')) {
    const std::string_view port = host.substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
    if (error != std::errc() || end != port.data() + port.size()) throw UsageError("{} is no port", port);
    host = host.substr(0, colon);
  }
  const bool is_v6 = host.starts_with('[') && host.ends_with(']');
  url.host = is_v6 ? host.substr(1, host.size() - 2) : host;
  return url;
}

std::string_view HttpResult::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers) {
    if (name == lower_case_name) return value;
  }
  return {};
}

HttpClient::HttpClient(const std::string& host, uint16_t port, std::chrono::milliseconds timeout)
    : host_(authority(host, port)) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    throw Error("{}: this host is not known", host);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timeval limit{seconds.count(), suseconds_t(std::chrono::microseconds(timeout - seconds).count())};
  bool is_silent = false;
  for (const addrinfo* a = found; a && fd_ < 0; a = a->ai_next) {
    fd_ = ::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd_ < 0) continue;
    // Before connecting, which takes as long as sending may.
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (::connect(fd_, a->ai_addr, a->ai_addrlen) == 0) break;
    is_silent = errno == EINPROGRESS || errno == ETIMEDOUT;
    close();
  }
  ::freeaddrinfo(found);
  if (fd_ < 0 && is_silent) throw Error("{} is silent: it does not take a connection", host_);
  if (fd_ < 0) throw Error("no server answers at {}", host_);
  const int on = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

HttpClient::~HttpClient() { close(); }

HttpClient::HttpClient(HttpClient&& other) noexcept
    : host_(std::move(other.host_)), fd_(std::exchange(other.fd_, -1)), in_(std::move(other.in_)) {}

void HttpClient::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void HttpClient::send_raw(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) throw Error("{} does not take what it is sent", host_);
    if (n <= 0) throw Closed("{} closed the connection", host_);
    bytes.remove_prefix(size_t(n));
  }
}

void HttpClient::send(std::string_view method, std::string_view path, std::string_view body, const Headers& headers) {
  std::string text = fmt::format("{} {} HTTP/1.1\r\nhost: {}\r\n", method, path, host_);
  for (const auto& [name, value] : headers) text += fmt::format("{}: {}\r\n", name, value);
  if (!body.empty() || method == "POST")
    text += fmt::format("content-type: application/json\r\ncontent-length: {}\r\n", body.size());
  send_raw(text + "\r\n" + std::string(body));
}

void HttpClient::require_held(size_t bytes) const {
  if (bytes > kMostHeld) throw Error("{} sends more than {} MiB at once", host_, kMostHeld >> 20);
}

bool HttpClient::fill() {
  require_held(in_.size());
  char chunk[16384];
  ssize_t n = 0;
  do n = ::recv(fd_, chunk, sizeof chunk, 0);
  while (n < 0 && errno == EINTR);  // a process that was stopped and goes on
  if (n < 0 && errno == ECONNRESET) throw Closed("{} broke the connection", host_);
  if (n < 0) throw Error("{} does not answer", host_);
  in_.append(chunk, size_t(n));
  return n > 0;
}

std::string HttpClient::read_line() {
  size_t end;
  while ((end = in_.find("\r\n")) == std::string::npos) {
    if (in_.size() > kMostLine)
      throw Error("{} does not speak HTTP: a line is longer than {} KiB", host_, kMostLine >> 10);
    if (!fill()) throw Closed("{} closed the connection", host_);
  }
  std::string line = in_.substr(0, end);
  in_.erase(0, end + 2);
  return line;
}

std::string HttpClient::read_bytes(size_t count) {
  require_held(count);
  while (in_.size() < count) {
    if (!fill()) throw Closed("{} closed the connection", host_);
  }
  std::string bytes = in_.substr(0, count);
  in_.erase(0, count);
  return bytes;
}

HttpResult HttpClient::read_head() {
  HttpResult result;
  do {
    const std::string line = read_line();
    if (line.size() < 12 || !line.starts_with("HTTP/1.")) throw Error("{} does not speak HTTP", host_);
    std::from_chars(line.data() + 9, line.data() + 12, result.status);
    if (result.status < 100) throw Error("{} does not speak HTTP", host_);
    result.headers.clear();
    for (std::string header = read_line(); !header.empty(); header = read_line()) {
      if (result.headers.size() == kMostHeaders) throw Error("{} sends more than {} headers", host_, kMostHeaders);
      const size_t colon = std::min(header.find(':'), header.size());
      std::string name = header.substr(0, colon);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
      const size_t value = header.find_first_not_of(' ', colon + 1);
      result.headers.emplace_back(std::move(name), value == std::string::npos ? "" : header.substr(value));
    }
  } while (result.status == 100);
  events_.clear();
  is_complete_ = false;
  is_chunked_ = result.header("transfer-encoding") == "chunked";
  length_.reset();
  if (const std::string_view length = result.header("content-length"); !length.empty()) {
    size_t bytes = 0;
    const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), bytes);
    if (error != std::errc() || end != length.data() + length.size())
      throw Error("{} says content-length: {}, which is no number", host_, excerpt(length));
    length_ = bytes;
  }
  return result;
}

std::optional<std::string> HttpClient::read_chunk() {
  if (is_complete_) return {};
  if (!is_chunked_) {
    is_complete_ = true;
    return read_body();
  }
  const std::string line = read_line();
  size_t size = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), size, 16);
  if (error != std::errc()) throw Error("{} sent a chunk without a size", host_);
  std::string chunk = read_bytes(size);
  read_line();
  is_complete_ = size == 0;
  if (is_complete_) return {};
  return chunk;
}

std::string HttpClient::read_body() {
  if (length_) return read_bytes(*std::exchange(length_, 0));
  if (!is_chunked_) return read_raw();
  std::string body;
  while (const auto chunk = read_chunk()) {
    require_held(body.size() + chunk->size());
    body += *chunk;
  }
  return body;
}

std::optional<std::string> HttpClient::next_event() {
  constexpr std::string_view kData = "data: ";
  for (;;) {
    size_t end;
    while ((end = events_.find("\n\n")) == std::string::npos) {
      const auto chunk = read_chunk();
      if (!chunk) return {};
      require_held(events_.size() + chunk->size());
      events_ += *chunk;
    }
    const std::string event = events_.substr(0, end);
    events_.erase(0, end + 2);
    const size_t data = event.starts_with(kData) ? 0 : event.find("\ndata: ");
    if (data != std::string::npos) return event.substr(data + kData.size() + (data > 0 ? 1 : 0));
  }
}

HttpResult HttpClient::request(std::string_view method, std::string_view path, std::string_view body,
                               const Headers& headers) {
  send(method, path, body, headers);
  HttpResult result = read_head();
  result.body = read_body();
  return result;
}

std::string HttpClient::read_raw() {
  while (fill()) {
  }
  return std::exchange(in_, {});
}

bool HttpClient::is_closed_by_server(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd poll{fd_, POLLIN, 0};
    if (::poll(&poll, 1, int(left.count())) <= 0) return false;
    char chunk[4096];
    if (::recv(fd_, chunk, sizeof chunk, 0) <= 0) return true;
  }
}

}  // namespace weft::bench
