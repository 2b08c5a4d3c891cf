// Post-processors of tokenizer.json: for one text, all of them come down to ids before and behind it.
#include "weft/base/error.h"
#include "weft/text/limits.h"
#include "weft/text/readers/hf_parts.h"

namespace weft::hf {
namespace {

void append_special(const Part& part, const std::string& name, std::vector<int32_t>& ids) {
  const JsonView list = part.json.at("special_tokens").at(name).at("ids");
  for (int64_t i = 0; i < list.size(); ++i) ids.push_back(int32_t(list.at(i).integer(0, kMostTokens - 1)));
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
    for (int64_t i = 0; i < list.size(); ++i) {
      const Surroundings one = read_post_processor({list.at(i), part.origin});
      all.before.insert(all.before.begin(), one.before.begin(), one.before.end());
      all.after.insert(all.after.end(), one.after.begin(), one.after.end());
    }
    return all;
  }
  if (type == "ByteLevel") {  // changes offsets, which weft does not keep
    part.only({"add_prefix_space", "trim_offsets", "use_regex"});
    return {};
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    part.only({"sep", "cls", "trim_offsets", "add_prefix_space"});
    return {{id_of_pair(part.json.at("cls"))}, {id_of_pair(part.json.at("sep"))}};
  }
  part.refuse("post-processor");
}

}  // namespace weft::hf
