// Mailbox: a list searched in order; payloads are copied outside the lock.
#include "weft/comm/mailbox.h"

#include <algorithm>
#include <cstring>

#include "weft/base/error.h"

namespace weft {

// The free message that fits best, or any.
std::unique_ptr<Mailbox::Message> Mailbox::find_free(size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::make_unique<Message>();
  const auto waste = [&](const auto& m) {
    return m->payload.size() >= bytes ? m->payload.size() - bytes : SIZE_MAX - m->payload.size();
  };
  const auto best = std::ranges::min_element(free_, {}, waste);
  std::swap(*best, free_.back());
  std::unique_ptr<Message> message = std::move(free_.back());
  free_.pop_back();
  return message;
}

void Mailbox::put(int from, const Collective& send) {
  std::unique_ptr<Message> message = find_free(send.bytes);
  if (message->payload.size() < send.bytes) message->payload.resize(send.bytes);
  if (send.bytes) std::memcpy(message->payload.data(), send.in, send.bytes);
  message->from = from, message->send = send;
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(message));
  }
  signal_.raise();
}

std::unique_ptr<Mailbox::Message> Mailbox::find(int from, int tag) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(waiting_, [&](const auto& m) { return m->from == from && m->send.tag == tag; });
  if (found == waiting_.end()) return nullptr;
  std::unique_ptr<Message> message = std::move(*found);
  waiting_.erase(found);
  return message;
}

void Mailbox::take(int rank, const Collective& recv, bool spins,
                   FunctionRef<std::chrono::nanoseconds()> before_sleep) {
  std::unique_ptr<Message> message;
  const auto is_here = [&] {  // may be asked again after it has said yes
    if (!message) message = find(recv.peer, recv.tag);
    return message != nullptr;
  };
  signal_.wait(spins, is_here, before_sleep);
  if (message->send.bytes != recv.bytes || message->send.dtype != recv.dtype)
    throw Error("rank {} calls {}, rank {} calls {}; both must name the same size and dtype", recv.peer,
                describe(message->send), rank, describe(recv));
  if (recv.bytes) std::memcpy(recv.out, message->payload.data(), recv.bytes);
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(message));
}

}  // namespace weft
