// Near: what a rank owns of a bucket is there to be used, wherever it lives.
#pragma once
#include <span>

#include "weft/parallel/data/bucket.h"

namespace weft {

// While it lives, masters, values and states of one bucket are near; what is written to them is kept.
class Near {
 public:
  Near(const Owned& owned, Access access) : far_(owned.far) {
    if (far_.states) far_.states->enter(far_.part, access);
    if (far_.values) far_.values->enter(far_.part, access);
  }
  ~Near() {
    if (far_.values) far_.values->leave(far_.part);
    if (far_.states) far_.states->leave(far_.part);
  }
  Near(const Near&) = delete;
  Near& operator=(const Near&) = delete;

 private:
  FarHome far_;
};

// Around a walk over all buckets, so that each one is on its way before it is its turn.
class NearInTurn {
 public:
  explicit NearInTurn(std::span<const Owned> owned) : far_(owned.empty() ? FarHome{} : owned[0].far) {
    if (far_.states) far_.states->keep_windows();
    if (far_.values) far_.values->keep_windows();
  }
  ~NearInTurn() {
    if (far_.values) far_.values->let_go();
    if (far_.states) far_.states->let_go();
  }
  NearInTurn(const NearInTurn&) = delete;
  NearInTurn& operator=(const NearInTurn&) = delete;

 private:
  FarHome far_;
};

}  // namespace weft
