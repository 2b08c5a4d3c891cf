// TextPlace: where in the whole text a stretch stands that a tokenizer is working on.
#pragma once

namespace weft {

struct TextPlace {
  bool at_start = true;    // of the whole text
  bool continues = false;  // the same stretch began in an earlier call: nothing is put before it or taken from there
};

}  // namespace weft
