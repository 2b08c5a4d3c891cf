// Connection: one client's TCP or TLS connection: reads requests, waits for answers, notices when the client is gone.
// Only server.cpp includes this.
#pragma once
#include <utility>  // Boost 1.74's awaitable.hpp needs it before it

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "weft/serve/http/pending_exchange.h"
#include "weft/serve/http/server.h"

namespace weft::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using PlainStream = asio::ip::tcp::socket;
using TlsStream = asio::ssl::stream<PlainStream>;

// What connections share. Written by the network thread only, read by any.
struct Shared {
  const ServerOptions& options;
  WorkQueue& workers;
  Handler* handler = nullptr;  // there before the first connection
  std::atomic<int64_t> connections{0}, exchanges{0};
  std::atomic<uint64_t> body_bytes{0};
  std::atomic<bool> is_draining{false};
};

// For the server, whatever the stream.
class AnyConnection {
 public:
  virtual ~AnyConnection() = default;
  virtual void close_if_idle() = 0;  // on the network thread, like all below
  virtual void close() = 0;
};

template <class Stream>
class Connection : public AnyConnection, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  Connection(Stream stream, Shared& shared)
      : shared_(shared),
        stream_(std::move(stream)),
        changed_(stream_.get_executor()),
        watchdog_(stream_.get_executor()) {
    ++shared_.connections;
  }
  ~Connection() override { --shared_.connections; }

  void start() {
    asio::co_spawn(
        stream_.get_executor(), [self = this->shared_from_this()] { return self->run(); }, asio::detached);
  }
  void close_if_idle() override {
    if (!exchange_) close();
  }
  void close() override {
    is_gone_ = true;
    error_code ignored;
    socket().close(ignored);
    if (exchange_) exchange_->client_is_gone();
    notify();
  }

 private:
  using Parser = beast::http::request_parser<beast::http::string_body>;
  static constexpr size_t kMostReadAhead = 64 << 10;  // beyond a request that is being answered
  static constexpr size_t kSmallBody = 64 << 10;      // read, even if only to refuse it
  static constexpr std::chrono::seconds kLinger{2};   // for a refused body to arrive, so that the refusal is read
  static constexpr uint64_t kSlowestBody = 64 << 10;  // bytes a second

  PlainStream& socket() {
    if constexpr (std::is_same_v<Stream, TlsStream>)
      return stream_.next_layer();
    else
      return stream_;
  }
  auto into(error_code& e) { return asio::redirect_error(asio::use_awaitable, e); }

  // Closes the connection unless disarmed in time; for operations that have no deadline of their own.
  void arm(std::chrono::milliseconds timeout) {
    watchdog_.expires_after(timeout);
    watchdog_.async_wait([weak = this->weak_from_this()](error_code e) {
      if (e) return;
      if (const auto self = weak.lock()) self->close();
    });
  }
  void disarm() { watchdog_.cancel(); }

  void notify() {
    has_changed_ = true;
    changed_.cancel();
  }
  // Until notify(), or the deadline: false.
  asio::awaitable<bool> wait_until(Clock::time_point deadline) {
    if (!has_changed_) {
      error_code ignored;
      changed_.expires_at(deadline);
      co_await changed_.async_wait(into(ignored));
    }
    co_return std::exchange(has_changed_, false);
  }

  asio::awaitable<void> run() {
    const auto self = this->shared_from_this();
    error_code ignored;
    socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    if (co_await shake_hands()) {
      asio::co_spawn(
          stream_.get_executor(), [self] { return self->read_all(); }, asio::detached);
      while (!is_gone_ && co_await serve_one()) {
      }
    }
    disarm();
    close();
  }

  asio::awaitable<bool> shake_hands() {
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      error_code error;
      arm(shared_.options.handshake_timeout);
      co_await stream_.async_handshake(asio::ssl::stream_base::server, into(error));
      disarm();
      co_return !error;
    }
    co_return true;
  }

  // Reads for as long as the connection lives, also during an answer: an end then means that the client is gone.
  asio::awaitable<void> read_all() {
    const auto self = this->shared_from_this();
    std::array<char, 8192> chunk;
    while (!is_gone_) {
      error_code error;
      const size_t n = co_await stream_.async_read_some(asio::buffer(chunk), into(error));
      if (error || (exchange_ && in_.size() + n > kMostReadAhead)) break;
      in_.append(chunk.data(), n);
      notify();
    }
    close();
  }

  // One request and its answer; false when the connection is to be closed.
  asio::awaitable<bool> serve_one() {
    const auto idle_deadline = Clock::now() + shared_.options.idle_timeout;
    while (in_.empty()) {
      if (is_gone_ || shared_.is_draining) co_return false;
      if (!co_await wait_until(idle_deadline)) co_return false;
    }
    Parser parser;
    parser.header_limit(shared_.options.max_header_bytes);
    parser.body_limit(shared_.options.max_body_bytes);
    headers_of_replies_.clear();
    path_.clear();
    const int refused = co_await read_head(parser);
    if (refused != 0 && refused != 413) co_return co_await refuse(refused);  // 413: the head is there
    auto request = request_of(parser.get(), parser.chunked());
    if (!request) co_return co_await refuse(400);
    path_ = request->target.path;
    headers_of_replies_ = shared_.handler->headers_of_replies(*request);
    if (refused != 0) co_return co_await refuse(refused);
    const bool is_1_1 = parser.get().version() >= 11;
    const bool keep_alive = is_1_1 && parser.keep_alive() && !shared_.is_draining;
    std::optional<Reply> answer = shared_.handler->answer_at_once(*request);
    const uint64_t length = parser.content_length_remaining().value_or(0);
    const bool is_small = !parser.chunked() && length <= kSmallBody;
    if (answer && request->method == "HEAD") answer->is_head_only = true;
    if (answer && !is_small) co_return co_await refuse(std::move(*answer));
    const uint64_t body_room = parser.chunked() ? shared_.options.max_body_bytes : length;
    const BodyShare share(shared_, body_room);
    if (!share.is_granted()) co_return co_await refuse(503);
    if (const int status = co_await read_body(parser, *request)) co_return co_await refuse(status);
    if (answer) co_return co_await send(*answer, keep_alive) && keep_alive;
    request->body = std::move(parser.get().body());
    co_return co_await converse(std::move(*request), keep_alive, is_1_1) && keep_alive;
  }

  // Of the memory for bodies that all connections share.
  class BodyShare {
   public:
    BodyShare(Shared& shared, uint64_t bytes) : shared_(shared), bytes_(bytes) {
      is_granted_ = (shared_.body_bytes += bytes_) <= shared_.options.max_all_body_bytes;
    }
    ~BodyShare() { shared_.body_bytes -= bytes_; }
    BodyShare(const BodyShare&) = delete;
    bool is_granted() const { return is_granted_; }

   private:
    Shared& shared_;
    uint64_t bytes_;
    bool is_granted_;
  };

  // Feeds the parser until `is_done`; 0, or the status of the refusal.
  template <class Done>
  asio::awaitable<int> feed(Parser& parser, Clock::time_point deadline, Done is_done) {
    while (!is_done()) {
      error_code error;
      const size_t used = in_.empty() ? 0 : parser.put(asio::buffer(in_), error);
      in_.erase(0, used);
      if (error == beast::http::error::need_more) error = {};
      if (error == beast::http::error::header_limit) co_return 431;
      if (error == beast::http::error::body_limit) co_return 413;
      if (error) co_return 400;
      if (is_done()) break;
      if (used > 0 && !in_.empty()) continue;  // the parser takes one thing at a time
      if (!co_await wait_until(deadline)) co_return 408;
      if (is_gone_) co_return 400;
    }
    co_return 0;
  }
  asio::awaitable<int> read_head(Parser& parser) {
    return feed(parser, Clock::now() + shared_.options.header_timeout, [&parser] { return parser.is_header_done(); });
  }
  asio::awaitable<int> read_body(Parser& parser, const Request& request) {
    if (const std::string_view expect = request.header("expect"); !expect.empty() && !parser.is_done()) {
      if (!beast::iequals({expect.data(), expect.size()}, "100-continue")) co_return 417;
      if (!co_await write("HTTP/1.1 100 Continue\r\n\r\n")) co_return 400;
    }
    const uint64_t bytes = parser.content_length_remaining().value_or(shared_.options.max_body_bytes);
    const auto patience = shared_.options.body_timeout + std::chrono::seconds(bytes / kSlowestBody);
    co_return co_await feed(parser, Clock::now() + patience, [&parser] { return parser.is_done(); });
  }

  // Nothing when the head is not one that everybody reads in the same way.
  template <class Message>
  static std::optional<Request> request_of(const Message& message, bool is_chunked) {
    std::optional<Target> target = parse_target({message.target().data(), message.target().size()});
    if (!target) return {};
    Request request{.method = std::string(message.method_string()), .target = std::move(*target)};
    int lengths = 0, encodings = 0, hosts = 0;
    for (const auto& field : message) {
      std::string name(field.name_string());
      std::transform(name.begin(), name.end(), name.begin(),
                     [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
      lengths += name == "content-length";
      encodings += name == "transfer-encoding";
      hosts += name == "host";
      request.headers.emplace_back(std::move(name), std::string(field.value()));
    }
    // A body whose end is not known would be read as the next request. Source: RFC 9112, section 6.3.
    if (encodings > 0 && !is_chunked) return {};
    if (lengths + encodings > 1 || hosts > 1 || (hosts == 0 && message.version() >= 11)) return {};
    return request;
  }

  // The handler answers on its threads; here what it writes is sent. False when the connection cannot go on.
  asio::awaitable<bool> converse(Request request, bool keep_alive, bool may_chunk) {
    const auto tell = [weak = this->weak_from_this(), executor = stream_.get_executor()] {
      asio::post(executor, [weak] {
        if (const auto self = weak.lock()) self->notify();
      });
    };
    exchange_ = std::make_shared<PendingExchange>(shared_.workers, tell, shared_.options.max_unsent_bytes,
                                                  headers_of_replies_, keep_alive, may_chunk);
    ++shared_.exchanges;
    exchange_->post(
        [&handler = *shared_.handler, exchange = exchange_, moved = std::make_shared<Request>(std::move(request))] {
          handler.handle(std::move(*moved), exchange);
        });
    bool is_fine = true;
    for (;;) {
      const PendingExchange::Output output = exchange_->take();
      if (output.is_overrun || is_gone_) is_fine = false;
      if (is_fine && !output.bytes.empty()) is_fine = co_await write(output.bytes);
      if (!is_fine || (output.is_last && output.bytes.empty())) break;
      if (output.bytes.empty()) co_await wait_until(Clock::time_point::max());
    }
    if (!is_fine) exchange_->client_is_gone();
    exchange_.reset();
    --shared_.exchanges;
    co_return is_fine;
  }

  asio::awaitable<bool> write(std::string_view bytes) {
    while (!bytes.empty() && !is_gone_) {
      error_code error;
      arm(shared_.options.write_timeout);
      const size_t n = co_await stream_.async_write_some(asio::buffer(bytes.data(), bytes.size()), into(error));
      if (error) is_gone_ = true;
      bytes.remove_prefix(n);
    }
    disarm();
    co_return !is_gone_;
  }
  asio::awaitable<bool> send(const Reply& reply, bool keep_alive) {
    std::string text = reply_head(reply, headers_of_replies_, reply.body.size(), keep_alive, false);
    if (!reply.is_head_only) text += reply.body;
    co_return co_await write(text);
  }

  asio::awaitable<bool> refuse(int status) {
    if (is_gone_) co_return false;
    static constexpr std::pair<int, std::string_view> kReasons[] = {
        {400, "this is not a request of HTTP/1.1 that weft reads"},
        {408, "the request did not arrive in time"},
        {413, "the request's body is too large"},
        {417, "only 'Expect: 100-continue' is understood"},
        {431, "the request's head is too large"},
        {503, "too many large requests are under way; try again soon"}};
    std::string_view message;
    for (const auto& [code, reason] : kReasons) {
      if (code == status) message = reason;
    }
    co_return co_await refuse(shared_.handler->refusal(status, message, path_));
  }
  // Closing at once while the client still sends would lose the refusal.
  asio::awaitable<bool> refuse(Reply reply) {
    if (!co_await send(reply, false)) co_return false;
    error_code ignored;
    socket().shutdown(PlainStream::shutdown_send, ignored);
    const auto deadline = Clock::now() + kLinger;
    while (!is_gone_) {
      in_.clear();
      if (!co_await wait_until(deadline)) break;
    }
    co_return false;
  }

  Shared& shared_;
  Stream stream_;
  asio::steady_timer changed_, watchdog_;
  bool has_changed_ = false, is_gone_ = false;
  std::string in_;              // read and not yet parsed
  Headers headers_of_replies_;  // to the request that is being answered
  std::string path_;            // of that request, once its head is there
  std::shared_ptr<PendingExchange> exchange_;
};

}  // namespace weft::http
