// FarInputs: which inputs are near.
#include "weft/autograd/far_inputs.h"

namespace weft {

int FarInputs::new_entry(size_t bytes) {
  for (size_t i = 0; i < entries_.size(); ++i)
    if (!entries_[i].tape && entries_[i].slot.bytes == bytes) return int(i);
  Entry entry;
  entry.slot = far_.reserve(bytes);
  entries_.push_back(std::move(entry));
  return int(entries_.size()) - 1;
}

int FarInputs::newest_of(const Tape* tape) const {
  int newest = -1;
  for (size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].tape == tape && (newest < 0 || entries_[i].depth > entries_[size_t(newest)].depth))
      newest = int(i);
  return newest;
}

int FarInputs::put(const Tape& tape, Tensor x) {
  if (newest_ >= 0) {
    Entry& last = entries_[size_t(newest_)];
    far_.wait(last.ticket);
    last.near = {};
  }
  const int previous = newest_of(&tape);
  newest_ = new_entry(x.bytes());
  Entry& e = entries_[size_t(newest_)];
  e.dtype = x.dtype(), e.shape = x.shape(), e.tape = &tape;
  e.previous = previous, e.depth = previous < 0 ? 0 : entries_[size_t(previous)].depth + 1;
  e.near = std::move(x);
  e.ticket = far_.start_store(e.slot, e.near);
  return newest_;
}

void FarInputs::load(Entry& e) {
  if (e.near) return;
  e.near = near_.empty(e.dtype, e.shape);
  e.ticket = far_.start_load(e.slot, e.near);
}

Tensor FarInputs::take(int id) {
  Entry& e = entries_[size_t(id)];
  load(e);
  if (e.previous >= 0) load(entries_[size_t(e.previous)]);
  far_.wait(e.ticket);
  Tensor x = std::move(e.near);
  free(e);
  return x;
}

void FarInputs::forget(int id) noexcept {
  far_.wait_for_all();
  free(entries_[size_t(id)]);
}

void FarInputs::free(Entry& e) {
  if (newest_ >= 0 && &e == &entries_[size_t(newest_)]) newest_ = -1;
  e.near = {};
  e.tape = nullptr;
  e.previous = -1;
}

}  // namespace weft
