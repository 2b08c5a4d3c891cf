// CommQueue: a ring of calls between one producer and one consumer.
#include "weft/comm/comm_queue.h"

namespace weft {
namespace {

constexpr std::chrono::seconds kIdle{1};  // everything that ends a sleep raises a signal

}  // namespace

CommQueue::CommQueue(std::function<void(const Collective&)> run, bool spins)
    : run_(std::move(run)), spins_(spins), thread_([this] { work(); }) {}

CommQueue::~CommQueue() {
  stop_.store(true);
  pushed_signal_.raise();
  thread_.join();
}

uint32_t CommQueue::push(const Collective& call) {
  const uint32_t ticket = pushed_.load(std::memory_order_relaxed) + 1;
  wait_until_done(ticket - kCapacity);
  ring_[ticket % kCapacity] = call;
  pushed_.store(ticket);
  pushed_signal_.raise();
  return ticket;
}

void CommQueue::wait(uint32_t ticket) {
  wait_until_done(ticket);
  throw_failure(ticket);
}

void CommQueue::wait(uint32_t ticket, FunctionRef<void()> look_around) {
  constexpr std::chrono::milliseconds kLookAround{20};
  done_signal_.wait(
      spins_, [&] { return is_done(ticket); },
      [&] {
        look_around();
        return kLookAround;
      });
  throw_failure(ticket);
}

void CommQueue::throw_failure(uint32_t ticket) {
  if (has_failed_.load(std::memory_order_acquire) && int32_t(ticket - failed_ticket_) >= 0)
    std::rethrow_exception(failure_);
}

void CommQueue::wait_until_done(uint32_t ticket) {
  done_signal_.wait(
      spins_, [&] { return is_done(ticket); }, [] { return kIdle; });
}

void CommQueue::work() {
  for (uint32_t ticket = 1;; ++ticket) {
    pushed_signal_.wait(
        spins_, [&] { return pushed_.load() != ticket - 1 || stop_.load(); }, [] { return kIdle; });
    if (pushed_.load() == ticket - 1) return;
    try {
      if (!has_failed_.load(std::memory_order_relaxed)) run_(ring_[ticket % kCapacity]);
    } catch (...) {
      failure_ = std::current_exception();
      failed_ticket_ = ticket;
      has_failed_.store(true);
    }
    done_.store(ticket);
    done_signal_.raise();
  }
}

}  // namespace weft
