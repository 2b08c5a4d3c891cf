// Server: listens, speaks HTTP/1.1 with or without TLS, and hands requests to a Handler. It never connects anywhere.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "weft/serve/http/handler.h"

namespace weft::http {

struct ServerOptions {
  std::string host = "127.0.0.1";  // an address of this machine, or "localhost"
  uint16_t port = 8000;            // 0: any that is free
  std::string tls_cert, tls_key;   // PEM files; both or neither
  int workers = 2;                 // threads that parse, tokenize and write answers

  uint32_t max_header_bytes = 32 << 10;
  uint64_t max_body_bytes = 4 << 20;
  uint64_t max_all_body_bytes = 256 << 20;  // of all connections together
  size_t max_unsent_bytes = 256 << 10;      // a client that leaves more unread is taken for gone
  int max_connections = 4096;
  std::chrono::milliseconds handshake_timeout{10000};  // of TLS
  std::chrono::milliseconds header_timeout{10000};     // from a request's first byte to the end of its head
  std::chrono::milliseconds body_timeout{10000};       // and then for its body, beside a second for each 64 KiB
  std::chrono::milliseconds idle_timeout{15000};       // between requests
  std::chrono::milliseconds write_timeout{30000};      // without any progress
};

// A moment of the server.
struct ServerStats {
  int64_t connections = 0, exchanges = 0;
  uint64_t body_bytes = 0;
};

class Server {
 public:
  // Takes the address; until it listens clients are refused. Throws UsageError naming an address or a certificate
  // that cannot be used, so that this is known before what the server is for has been made.
  explicit Server(const ServerOptions& options);
  ~Server();  // closes every connection
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Once: listens when it returns. `handler` outlives the server. Throws UsageError when the address was taken
  // meanwhile.
  void listen(Handler& handler);
  uint16_t port() const;
  ServerStats stats() const;

  // Takes no more connections, closes those that are idle and waits until the others have their answers, or for
  // `patience`. Those that are left then are closed behind `cut`, which ends their answers: what it says of that is
  // sent first, within a second. Returns how many had to be cut.
  int64_t drain(std::chrono::milliseconds patience, const std::function<void()>& cut = {});

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether an address can be reached from this machine only.
bool is_loopback(const std::string& host);

}  // namespace weft::http
