// PendingExchange: a bounded buffer with a head, in chunks where the client understands them.
#include "weft/serve/http/pending_exchange.h"

#include <fmt/format.h>

namespace weft::http {

PendingExchange::PendingExchange(WorkQueue& workers, std::function<void()> tell, size_t max_unsent_bytes,
                                 Headers headers, bool keep_alive, bool may_chunk)
    : tell_(std::move(tell)),
      max_unsent_bytes_(max_unsent_bytes),
      headers_(std::move(headers)),
      keep_alive_(keep_alive),
      may_chunk_(may_chunk),
      strand_(workers.make_strand()) {}

// The limit is for streams: a whole reply is in memory anyway.
void PendingExchange::put(std::string_view bytes, bool is_last) {
  // Called and destroyed without the lock: they may hold the last reference to what locks it.
  std::function<void()> told, done;
  {
    const std::lock_guard lock(mutex_);
    if (is_complete_ || is_gone_) return;
    unsent_ += bytes;
    is_complete_ = is_last;
    if (is_stream_ && unsent_.size() > max_unsent_bytes_) {
      is_overrun_ = is_gone_ = true;
      unsent_.clear();
      told = std::exchange(when_gone_, nullptr);
    } else if (is_last) {
      done = std::exchange(when_gone_, nullptr);
    }
    if (is_complete_ || is_gone_) strand_ = nullptr;
    if (!std::exchange(is_told_, true)) tell_();
  }
  if (told) told();
}

void PendingExchange::reply(Reply reply) {
  put(reply_head(reply, headers_, reply.body.size(), keep_alive_, false) + reply.body, true);
}

void PendingExchange::begin_stream(Reply head) {
  {
    const std::lock_guard lock(mutex_);
    is_stream_ = true;
  }
  put(reply_head(head, headers_, {}, keep_alive_ && may_chunk_, may_chunk_), false);
}

void PendingExchange::write(std::string_view bytes) {
  if (bytes.empty()) return;
  put(may_chunk_ ? fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes) : std::string(bytes), false);
}

void PendingExchange::end_stream() { put(may_chunk_ ? "0\r\n\r\n" : "", true); }

void PendingExchange::post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (strand_) strand_(std::move(work));
}

void PendingExchange::when_gone(std::function<void()> told) {
  {
    const std::lock_guard lock(mutex_);
    if (is_complete_) return;
    if (!is_gone_) {
      when_gone_ = std::move(told);
      return;
    }
  }
  told();
}

PendingExchange::Output PendingExchange::take() {
  const std::lock_guard lock(mutex_);
  is_told_ = false;
  return {std::exchange(unsent_, {}), is_complete_, is_overrun_};
}

void PendingExchange::client_is_gone() {
  std::function<void()> told;
  {
    const std::lock_guard lock(mutex_);
    is_gone_ = true;
    strand_ = nullptr;
    unsent_.clear();
    if (!is_complete_) told = std::exchange(when_gone_, nullptr);
  }
  if (told) told();
}

}  // namespace weft::http
