// FarParts: which window holds which part.
#include "weft/tensor/far_parts.h"

#include <algorithm>

namespace weft {
namespace {

// Tensors in a window begin as they would in memory of their own.
size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

size_t FarParts::add_part() {
  parts_.push_back(std::make_unique<Part>());
  return parts_.size() - 1;
}

FarTensor& FarParts::add(size_t part, DType dtype, Shape shape) {
  check(users_ == 0, "a tensor is added while parts of far memory are near");
  Part& p = *parts_[part];
  p.tensors.push_back(std::make_unique<FarTensor>(far_, near_.device(), dtype, shape));
  p.bytes += aligned(p.tensors.back()->bytes());
  return *p.tensors.back();
}

int64_t FarParts::window_bytes() const {
  size_t most = 0;
  for (const auto& p : parts_) most = std::max(most, p->bytes);
  return int64_t(most);
}

FarParts::Window* FarParts::window_of(const Part& part) {
  for (Window& w : windows_)
    if (w.part == &part) return &w;
  return nullptr;
}

void FarParts::enter(size_t index, Access access) {
  Part& part = *parts_[index];
  if (part.tensors.empty()) return;
  ++users_;
  Window* w = window_of(part);
  if (!w) {
    w = windows_[0].users == 0 ? &windows_[0] : &windows_[1];
    check(w->users == 0, "three parts of far memory are wanted at a time");
    load(*w, index);
  }
  ++w->users;
  w->is_written |= access == Access::write;
  for (const auto& t : part.tensors) t->wait();
  Window& other = windows_[w == &windows_[0]];
  const size_t next = index + 1;
  if (next < parts_.size() && other.users == 0 && other.part != parts_[next].get()) load(other, next);
}

void FarParts::leave(size_t index) noexcept {
  if (parts_[index]->tensors.empty()) return;
  if (Window* w = window_of(*parts_[index]); w && --w->users == 0) store(*w);
  let_go();
}

void FarParts::let_go() noexcept {
  if (--users_ > 0) return;
  for (Window& w : windows_) put_back(w);
  far_.wait_for_all();
  for (Window& w : windows_) w.memory = {};
}

void FarParts::load(Window& w, size_t index) {
  put_back(w);
  Part& part = *parts_[index];
  if (part.tensors.empty()) return;
  if (!w.memory) w.memory = near_.empty(DType::u8, {window_bytes()});
  w.part = &part;
  int64_t offset = 0;
  for (const auto& t : part.tensors) {
    t->start_load(w.memory.slice_flat(offset, {int64_t(t->bytes())}));
    offset += int64_t(aligned(t->bytes()));
  }
}

// A later load into the window comes after this: far memory keeps the order.
void FarParts::store(Window& w) noexcept {
  if (!w.is_written) return;
  for (const auto& t : w.part->tensors) t->start_store();
  w.is_written = false;
}

void FarParts::put_back(Window& w) noexcept {
  if (!w.part) return;
  store(w);
  for (const auto& t : w.part->tensors) t->drop();
  w.part = nullptr;
}

}  // namespace weft
