// FarInputs: the inputs of recomputed functions, in far memory until their gradients are wanted.
#pragma once
#include <vector>

#include "weft/autograd/saved_inputs.h"
#include "weft/tensor/far_memory.h"

namespace weft {

// An input is stored while its function runs and stays near until the next one is put in, whatever the tape. When one
// is taken, the one before it on its tape is loaded. So at most two are near: the newest, or the one taken and the
// next, beside the newest.
class FarInputs final : public SavedInputs {
 public:
  FarInputs(FarMemory& far, Allocator& near) : far_(far), near_(near) {}
  ~FarInputs() override { far_.wait_for_all(); }

  int put(const Tape& tape, Tensor x) override;
  Tensor take(int id) override;
  void forget(int id) noexcept override;

 private:
  struct Entry {
    FarMemory::Slot slot;  // kept for the next input of its size
    FarMemory::Ticket ticket = 0;
    Tensor near;  // empty while it is away
    DType dtype = DType::f32;
    Shape shape;
    const Tape* tape = nullptr;  // null: free
    int previous = -1;           // of the tape
    int depth = 0;               // how many are before it on the tape
  };
  int new_entry(size_t bytes);
  int newest_of(const Tape* tape) const;
  void load(Entry& e);
  void free(Entry& e);

  FarMemory& far_;
  Allocator& near_;
  std::vector<Entry> entries_;
  int newest_ = -1;  // of all, if it is still there
};

}  // namespace weft
