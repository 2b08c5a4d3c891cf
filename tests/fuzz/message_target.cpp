// A message between replicas, as either end reads it: what is read is written as it was.
#include <algorithm>
#include <cstdlib>

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "weft/serve/remote/messages.h"

namespace weft {
namespace {

template <class Decode>
void read_and_write(Bytes input, const Decode& decode) {
  expect_errors_only([&] {
    if (!std::ranges::equal(remote::encode(decode(input)), input)) std::abort();
  });
}

}  // namespace

void fuzz_message(Bytes input) {
  read_and_write(input, remote::decode_to_replica);
  read_and_write(input, remote::decode_from_replica);
}

}  // namespace weft
