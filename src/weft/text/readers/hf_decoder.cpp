// Decoders of tokenizer.json.
#include "weft/base/error.h"
#include "weft/text/readers/hf_parts.h"

namespace weft::hf {
namespace {

struct Decoders {
  DecodeSteps steps;
  bool is_fused = false;  // what follows sees the whole text as one token
};

void read_into(const Part& part, Decoders& into) {
  const std::string type = part.type();
  if (type == "Sequence") {
    part.only({"decoders"});
    const JsonView list = part.json.at("decoders");
    for (int64_t i = 0; i < list.size(); ++i) read_into({list.at(i), part.origin}, into);
    return;
  }
  const auto add = [&](std::unique_ptr<DecodeStep> step) { into.steps.push_back(std::move(step)); };
  if (type == "Fuse") {
    part.only({});
    into.is_fused = true;
  } else if (type == "Strip") {
    part.only({"content", "start", "stop"});
    const auto count = [&](std::string_view key) { return size_t(part.json.at(key).integer(0, 1 << 16)); };
    add(strip_decoder(part.json.at("content").string(), count("start"), count("stop"), into.is_fused));
  } else if (type == "ByteLevel" && !into.is_fused) {
    part.only({"add_prefix_space", "trim_offsets", "use_regex"});
    add(byte_level_decoder());
  } else if (type == "ByteFallback" && !into.is_fused) {
    part.only({});
    add(byte_fallback_decoder());
  } else if (type == "Replace" && !into.is_fused) {
    part.only({"pattern", "content"});
    Pattern pattern = read_pattern(part);
    if (pattern.is_regex)
      throw Error("{}: {} replaces a regular expression, which weft's decoder does not do", part.origin,
                  part.json.path());
    add(replace_decoder(std::move(pattern.text), part.json.at("content").string()));
  } else if (type == "Metaspace" && !into.is_fused) {
    part.only({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    add(metaspace_decoder(part.json.at("replacement").string(), read_prepend_scheme(part) != PrependScheme::never));
  } else if (type == "WordPiece" && !into.is_fused) {
    part.only({"prefix", "cleanup"});
    add(word_piece_decoder(part.json.at("prefix").string(), part.json.boolean_or("cleanup", true)));
  } else if (type == "BPEDecoder" && !into.is_fused) {
    part.only({"suffix"});
    add(suffix_decoder(part.json.at("suffix").string()));
  } else {
    part.refuse(into.is_fused ? "decoder behind Fuse" : "decoder");
  }
}

}  // namespace

DecodeSteps read_decoder(const Part& part) {
  Decoders decoders;
  if (part.json.is_null())
    decoders.steps.push_back(space_between_decoder());
  else
    read_into(part, decoders);
  return std::move(decoders.steps);
}

}  // namespace weft::hf
