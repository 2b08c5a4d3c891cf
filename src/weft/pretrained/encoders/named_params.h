// NamedParams: reads the parameters of a small model from stored tensors, by a table of names.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/autograd/param.h"
#include "weft/pretrained/stored_tensors.h"

namespace weft {

// '#' stands for a number. Names leave out ".weight" and ".bias" where a layer has both. Several rows with one
// parameter are the names that versions of a library gave it.
struct EncoderName {
  std::string_view param, stored;
  int part = 0, parts = 1;  // of equal ones, one above the other, that the stored tensor is of
};

struct EncoderNames {
  std::vector<EncoderName> rows;
  std::string_view base;                       // what stored names may have before these: "bert."
  std::vector<std::string_view> ignored = {};  // patterns of tensors that say nothing
};

// Where each parameter of a model is stored, by the parameter's name: from an element of a tensor on.
struct FoundParam {
  const StoredInfo* info;
  int64_t first;
};
using FoundParams = std::unordered_map<std::string, FoundParam>;

// Sides of one count for nothing in a stored shape, and the weight of a convolution is [outputs, the rest]. Throws
// Error naming the tensor that is missing, has another size, or belongs to none of the parameters.
FoundParams find_params(const StoredTensors& stored, const EncoderNames& names, std::span<Param* const> params);

// Gives every one of these parameters its memory and this rank's part of its values.
void load_params(Context& context, const StoredTensors& stored, const FoundParams& found,
                 std::span<Param* const> params, DType dtype);

// Whether some tensor is stored under this name, with the base or without it.
bool has_stored(const StoredTensors& stored, const EncoderNames& names, std::string_view name);

}  // namespace weft
