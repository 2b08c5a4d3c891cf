// FarMemory: the queue of transfers and its thread.
#include "weft/tensor/far_memory.h"

#include <algorithm>
#include <chrono>

#include "weft/tensor/cuda/cuda_device.h"

namespace weft {

FarMemory::FarMemory(std::unique_ptr<FarStore> store, Stream* stream) : store_(std::move(store)), stream_(stream) {
  if (stream_) own_queue_ = make_cuda_queue();
  if (store_) thread_ = std::thread([this] { work(); });
}

FarMemory::~FarMemory() {
  if (!store_) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  started_signal_.notify_one();
  thread_.join();
}

FarMemory::Slot FarMemory::reserve(size_t bytes) {
  wait_for_all();
  stats_.reserved_bytes += int64_t(bytes);
  return {store_ ? store_->reserve(bytes) : 0, bytes};
}

FarMemory::Ticket FarMemory::start_store(const Slot& slot, const Tensor& from) {
  stats_.stored_bytes += int64_t(slot.bytes);
  return start(slot, from, true);
}

FarMemory::Ticket FarMemory::start_load(const Slot& slot, const Tensor& into) {
  stats_.loaded_bytes += int64_t(slot.bytes);
  return start(slot, into, false);
}

FarMemory::Ticket FarMemory::start(const Slot& slot, const Tensor& t, bool is_store) {
  check(t.bytes() == slot.bytes, "a slot of {} bytes in far memory for a tensor of {}", slot.bytes, t.bytes());
  if (!store_) return 0;
  if (stream_) own_queue_->follow(stream_->queue());
  const Ticket ticket = started_ + 1;  // only this thread writes started_
  if (ticket > kCapacity) wait_until_done(ticket - kCapacity);
  {
    const std::lock_guard lock(mutex_);
    ring_[ticket % kCapacity] = {slot.index, static_cast<std::byte*>(t.raw()), slot.bytes, is_store};
    started_ = ticket;
  }
  started_signal_.notify_one();
  return ticket;
}

void FarMemory::wait(Ticket ticket) {
  wait_until_done(ticket);
  const std::lock_guard lock(mutex_);
  if (ticket >= failed_) std::rethrow_exception(failure_);
}

void FarMemory::wait_for_all() noexcept { wait_until_done(started_); }

void FarMemory::wait_until_done(Ticket ticket) noexcept {
  std::unique_lock lock(mutex_);
  if (done_ >= ticket) return;
  const auto begin = std::chrono::steady_clock::now();
  done_signal_.wait(lock, [&] { return done_ >= ticket; });
  stats_.waited_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void FarMemory::move(const Transfer& t) {
  if (!own_queue_)
    return t.is_store ? store_->write(t.slot, {t.data, t.bytes}) : store_->read(t.slot, {t.data, t.bytes});
  if (const HostBlock* const slot = store_->memory(t.slot))
    return t.is_store ? copy_to(*slot, t) : copy_from(*slot, t);
  if (staged_.bytes() < t.bytes) staged_ = {}, staged_ = HostBlock(t.bytes, HostBlock::Pages::pinned);
  if (t.is_store) {
    copy_to(staged_, t);
    store_->write(t.slot, {staged_.data(), t.bytes});
  } else {
    store_->read(t.slot, {staged_.data(), t.bytes});
    copy_from(staged_, t);
  }
}

void FarMemory::copy_to(const HostBlock& host, const Transfer& t) {
  if (!host.is_pinned()) return own_queue_->copy_to_host(host.data(), t.data, t.bytes);
  own_queue_->start_copy_to_host(host.data(), t.data, t.bytes);
  own_queue_->wait();
}

void FarMemory::copy_from(const HostBlock& host, const Transfer& t) {
  if (host.is_pinned())
    own_queue_->start_copy_to_device(t.data, host.data(), t.bytes);
  else
    own_queue_->copy_to_device(t.data, host.data(), t.bytes);
  own_queue_->wait();
}

void FarMemory::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    started_signal_.wait(lock, [&] { return started_ > done_ || stop_; });
    if (started_ == done_) return;
    const Transfer t = ring_[(done_ + 1) % kCapacity];
    if (!failure_) {
      lock.unlock();
      std::exception_ptr failure;
      try {
        move(t);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure) failure_ = failure, failed_ = done_ + 1;
    }
    ++done_;
    done_signal_.notify_one();
  }
}

}  // namespace weft
