// Post-processors of tokenizer.json: all of them come down to ids before and behind one text, and around two.
#include "weft/base/error.h"
#include "weft/text/limits.h"
#include "weft/text/readers/hf_parts.h"

namespace weft::hf {
namespace {

void append_special(const Part& part, const std::string& name, std::vector<int32_t>& ids) {
  const JsonView list = part.json.at("special_tokens").at(name).at("ids");
  for (int64_t i = 0; i < list.size(); ++i) ids.push_back(int32_t(list.at(i).integer(0, kMostTokens - 1)));
}

// Nothing where the second text comes first or the kinds of tokens are not those of models that read pairs.
std::optional<PairSurroundings> read_pair(const Part& part) {
  const JsonView list = part.json["pair"];
  PairSurroundings around;
  int texts = 0;
  int64_t last_kind = 0;
  for (int64_t i = 0; list.is_array() && i < list.size(); ++i) {
    const JsonView item = list.at(i);
    const bool is_special = item.has("SpecialToken");
    const JsonView named = item.at(is_special ? "SpecialToken" : "Sequence");
    const int64_t kind = named.integer_or("type_id", 0, 0, INT32_MAX);
    if (is_special) {
      append_special(part, named.at("id").string(),
                     texts == 0   ? around.before
                     : texts == 1 ? around.between
                                  : around.after);
    } else if (named.at("id").string() == (texts == 0 ? "A" : "B")) {
      ++texts;
    } else {
      return {};
    }
    const bool is_second = texts == 2;
    if (is_second && !is_special && kind < 2)
      last_kind = kind;
    else if (kind != (is_second ? last_kind : 0))
      return {};
  }
  around.tells_apart = last_kind == 1;
  return texts == 2 ? std::optional(around) : std::nullopt;
}

Surroundings read_template(const Part& part) {
  part.only({"single", "pair", "special_tokens"});
  const JsonView list = part.json.at("single");
  Surroundings around;
  bool has_text = false;
  for (int64_t i = 0; i < list.size(); ++i) {
    const JsonView item = list.at(i);
    if (item.has("SpecialToken")) {
      append_special(part, item.at("SpecialToken").at("id").string(), has_text ? around.after : around.before);
      continue;
    }
    const std::string sequence = item.at("Sequence").at("id").string();
    if (has_text || sequence != "A")
      throw Error("{}: {} names the sequence \"{}\" where \"A\", once, was expected", part.origin, list.path(),
                  sequence);
    has_text = true;
  }
  if (!has_text) throw Error("{}: {} has no place for the text", part.origin, list.path());
  around.pair = read_pair(part);
  return around;
}

int32_t id_of_pair(const JsonView& pair) { return int32_t(pair.at(1).integer(0, kMostTokens - 1)); }

}  // namespace

Surroundings read_post_processor(const Part& part) {
  if (part.json.is_null()) return {};
  const std::string type = part.type();
  if (type == "TemplateProcessing") return read_template(part);
  if (type == "Sequence") {
    part.only({"processors"});
    const JsonView list = part.json.at("processors");
    Surroundings all;
    int adding = 0;  // of two pairs' surroundings nobody says how they go together
    for (int64_t i = 0; i < list.size(); ++i) {
      const Surroundings one = read_post_processor({list.at(i), part.origin});
      all.before.insert(all.before.begin(), one.before.begin(), one.before.end());
      all.after.insert(all.after.end(), one.after.begin(), one.after.end());
      if (!one.before.empty() || !one.after.empty() || one.pair) all.pair = ++adding == 1 ? one.pair : std::nullopt;
    }
    return all;
  }
  if (type == "ByteLevel") {  // changes offsets, which weft does not keep
    part.only({"add_prefix_space", "trim_offsets", "use_regex"});
    return {};
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    part.only({"sep", "cls", "trim_offsets", "add_prefix_space"});
    const int32_t first = id_of_pair(part.json.at("cls")), end = id_of_pair(part.json.at("sep"));
    const bool is_bert = type == "BertProcessing";
    const std::vector<int32_t> between(is_bert ? 1 : 2, end);
    return {{first}, {end}, PairSurroundings{{first}, between, {end}, is_bert}};
  }
  part.refuse("post-processor");
}

}  // namespace weft::hf
