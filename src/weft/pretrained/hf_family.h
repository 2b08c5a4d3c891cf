// HfFamily: what Hugging Face's library calls the fields and tensors of one kind of model, as data.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/models/model_config.h"
#include "weft/pretrained/hf_fields.h"
#include "weft/pretrained/hf_quantization.h"
#include "weft/pretrained/param_names.h"

namespace weft {

// A buffer of one number in every layer, '#', that the library saves and that is the same in all models.
struct HfConstant {
  std::string_view name;
  float value;
};

struct HfFamily {
  std::string_view family;        // weft's name of it
  std::string_view model_type;    // of config.json
  std::string_view architecture;  // of config.json: the class with a language-model head
  void (*fields)(HfFields&, ModelConfig&);
  const std::vector<NameRow>& (*names)(const ModelConfig&);
  std::string_view base;  // what names of tensors saved without the head lack: "model."
  // Patterns of tensors that say nothing: buffers that older versions of the library saved, and parts that only
  // training used.
  std::vector<std::string_view> ignored = {};
  std::vector<HfConstant> constants = {};  // written; files that say another number are refused
  // The same names where all experts of a layer lie in two tensors, as MXFP4 codes (HfQuantization::Kind::mxfp4) or
  // where a file has them so; null: they never do.
  const std::vector<NameRow>& (*names_of_stacks)(const ModelConfig&) = nullptr;
  // What some writers call otherwise; where a file has such a tensor, it is the parameter's.
  std::span<const NameRow> other_names = {};
  // Of the part that predicts a token further on, where weft knows it: its own tensors, and what its block's are
  // called where a layer's are model.layers.#.
  std::span<const NameRow> mtp = {};
  std::string_view mtp_layer = "model.layers.#";
  const char* mtp_key = "num_nextn_predict_layers";  // of config.json: how many there are
  bool leaves_layers_behind = false;  // weft does not know it, and leaves out what lies behind the last layer
};

// All families, in the order in which a model looks for one that can say all of it.
const std::vector<HfFamily>& hf_families();

struct HfConfig {
  const HfFamily* family = nullptr;
  ModelConfig model;
  std::optional<HfQuantization> quantization = {};  // of weights
  bool is_part = false;                             // of a model that has others, which are left alone
  bool has_stacks() const { return quantization && quantization->kind == HfQuantization::Kind::mxfp4; }
};
// Throws Error naming `source` and the key that is missing, out of range or says what weft cannot do; for an unknown
// model, its name and the nearest one.
HfConfig parse_hf_config(const JsonView& json);
HfConfig parse_hf_config(std::string_view json, const std::string& source);
// The config.json of a folder, for those who read it.
JsonDocument read_config_json(const std::string& folder);

// Of a model's parameters, the tensors of a file of this family; has_stacks: of one whose experts are stacks of
// codes. Throws Error where the family has none such.
std::vector<ParamNames> names_of(const HfFamily& family, const ModelConfig& config, bool has_stacks = false);
// The family's name of what is `name` in layer '#'; of the part that predicts further on, which lies behind them all.
std::string mtp_name(const HfFamily& family, std::string_view name, int64_t layers);

}  // namespace weft
