// PendingExchange: an answer on its way from the threads that write it to the one that sends it.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "weft/serve/http/handler.h"

namespace weft::http {

// Threads that run what is posted. `Strand`: of one, one after the other.
class WorkQueue {
 public:
  using Strand = std::function<void(std::function<void()>)>;
  virtual ~WorkQueue() = default;
  virtual Strand make_strand() = 0;
};

class PendingExchange : public Exchange {
 public:
  // `tell` is called, from any thread, when there is something to take. `headers`: of the reply, beside its own.
  PendingExchange(WorkQueue& workers, std::function<void()> tell, size_t max_unsent_bytes, Headers headers,
                  bool keep_alive, bool may_chunk);

  void reply(Reply reply) override;
  void begin_stream(Reply head) override;
  void write(std::string_view bytes) override;
  void end_stream() override;
  void post(std::function<void()> work) override;
  void when_gone(std::function<void()> told) override;

  // For the connection.
  struct Output {
    std::string bytes;
    bool is_last = false;     // the answer ends with these
    bool is_overrun = false;  // the client lets too much pile up
  };
  Output take();
  void client_is_gone();

 private:
  void put(std::string_view bytes, bool is_last);

  const std::function<void()> tell_;
  const size_t max_unsent_bytes_;
  const Headers headers_;
  const bool keep_alive_, may_chunk_;

  // What belongs to the server is called under the lock, and let go with the last bytes or the client: whoever still
  // holds this exchange then may outlive the server.
  std::mutex mutex_;
  WorkQueue::Strand strand_;
  std::string unsent_;
  bool is_stream_ = false, is_complete_ = false, is_gone_ = false, is_overrun_ = false, is_told_ = false;
  std::function<void()> when_gone_;
};

}  // namespace weft::http
