// The parts of a Hugging Face tokenizer.json, each read by its "type"; a type or a key that is not known is an Error.
#pragma once
#include <initializer_list>

#include "weft/base/json.h"
#include "weft/text/pipeline/decode_steps.h"
#include "weft/text/pipeline/normalizer.h"
#include "weft/text/pipeline/pre_tokenizer.h"
#include "weft/text/pipeline/subword_model.h"

namespace weft::hf {

// A part of the file, and which file it is.
struct Part {
  JsonView json;
  std::string_view origin;

  Part at(std::string_view key) const { return {json.at(key), origin}; }
  std::string type() const { return json.at("type").string(); }
  [[noreturn]] void refuse(std::string_view kind) const;  // this type of `kind`
  // Error for a key beside "type" that is not among `known`.
  void only(std::initializer_list<std::string_view> known) const;
};

// Each takes null too, and gives null.
std::unique_ptr<Normalizer> read_normalizer(const Part& part);
std::unique_ptr<PreTokenizer> read_pre_tokenizer(const Part& part);
DecodeSteps read_decoder(const Part& part);

std::unique_ptr<SubwordModel> read_model(const Part& part);

// What is put before and behind a single text, and around two.
struct Surroundings {
  std::vector<int32_t> before, after;
  std::optional<PairSurroundings> pair = {};
};
Surroundings read_post_processor(const Part& part);

// "pattern": {"String": ...} or {"Regex": ...}.
struct Pattern {
  std::string text;
  bool is_regex = false;
};
Pattern read_pattern(const Part& part);

// How Metaspace, before and after the model, says when it puts its mark before a text.
PrependScheme read_prepend_scheme(const Part& part);

}  // namespace weft::hf
