// ConstraintFactory: a constraint is a Matcher with the states that it came by, to go back to.
#include "weft/serve/constrain/constraint_factory.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "weft/base/error.h"
#include "weft/base/excerpt.h"
#include "weft/serve/constrain/control_marks.h"
#include "weft/serve/constrain/gbnf.h"
#include "weft/serve/constrain/json_schema.h"
#include "weft/serve/constrain/json_text.h"
#include "weft/serve/constrain/reasoning_grammar.h"
#include "weft/serve/constrain/regex_grammar.h"
#include "weft/serve/constrain/tool_call_grammar.h"
#include "weft/serve/constrain/triggered_constraint.h"

namespace weft::constrain {

struct CompiledForm {
  api::OutputForm form;
  Grammar grammar;
  uint64_t number;
};

namespace {

constexpr size_t kMostForms = 64;
constexpr size_t kMostKey = 1 << 20;

class GrammarConstraint : public TokenConstraint {
 public:
  GrammarConstraint(std::shared_ptr<const CompiledForm> form, std::shared_ptr<TokenMasks> masks)
      : form_(std::move(form)), masks_(std::move(masks)), matcher_(form_->grammar), past_{{matcher_.start()}} {
    past_.front().mark = matcher_.mark();
  }

  // What has come already; false when it cannot go on to have the form.
  bool begin_with(std::string_view said) {
    if (!step(past_.back().state, said)) return false;
    past_.back().mark = matcher_.mark();
    return true;
  }

  void fill(std::span<uint32_t> allowed) override {
    masks_->fill(matcher_, past_.back().state, form_->number, allowed);
  }

  void accept(int32_t token) override {
    Matcher::State state = past_.back().state;
    if (masks_->is_end(token)) {
      state.clear();  // where a model goes on behind its end, nothing but the end follows
    } else {
      const std::string_view bytes = masks_->bytes(token);
      check(!bytes.empty() && step(state, bytes), "token {} is not allowed here", token);
    }
    past_.push_back({std::move(state), matcher_.mark(), token});
  }

  void rewind(int64_t num_tokens) override {
    check(num_tokens >= 0 && size_t(num_tokens) < past_.size(), "{} tokens to forget of {}", num_tokens,
          past_.size() - 1);
    past_.resize(past_.size() - size_t(num_tokens));
    matcher_.release(past_.back().mark);
  }

  std::string said() const override {
    constexpr size_t kLongest = 40;
    std::string text;
    for (size_t i = past_.size(); i > 0 && text.size() <= kLongest; --i)
      text.insert(0, masks_->bytes(past_[i - 1].token));
    std::erase(text, kControlByte);
    return excerpt_of_end(text, kLongest);
  }

  const api::OutputForm* form() const override { return &form_->form; }

 private:
  struct Moment {
    Matcher::State state;
    size_t mark = 0;     // of the matcher, then
    int32_t token = -1;  // that led here
  };
  bool step(Matcher::State& state, std::string_view bytes) {
    Matcher::State next;
    for (const char byte : bytes) {
      if (!matcher_.step(state, uint8_t(byte), next)) return false;
      std::swap(state, next);
    }
    return true;
  }
  const std::shared_ptr<const CompiledForm> form_;
  const std::shared_ptr<TokenMasks> masks_;
  Matcher matcher_;
  std::vector<Moment> past_;  // the beginning, and after each token
};

// Throws UsageError for a form that is too ambiguous to begin, or, of a whole answer, that no token begins.
void check_start(const CompiledForm& form, TokenMasks& masks) {
  std::vector<uint32_t> allowed(size_t(masks.vocab() + 31) / 32);
  Matcher matcher(form.grammar);
  masks.fill(matcher, matcher.start(), form.number, allowed);
  const bool is_whole = form.form.trigger.empty();  // else the answer may go on without it
  if (is_whole && std::ranges::all_of(allowed, [](uint32_t word) { return word == 0; }))
    throw UsageError("this model's vocabulary cannot write the output's form: no token begins it");
}

// All that tells a form from others.
std::string key_of(const api::OutputForm& form) {
  std::string key = fmt::format("{}:{}:{}", int(form.kind), form.text.size(), form.text);
  for (const auto* texts : {&form.choices, &form.schemas}) {
    key += fmt::format("{}:", texts->size());
    for (const std::string& text : *texts) key += fmt::format("{}:{}", text.size(), text);
  }
  return key + fmt::format("{}:{}:{}", int(form.tool_format), form.is_parallel, form.trigger) +
         (form.is_whole_answer ? "!" : "") + (form.may_be_text ? "?" : "") + (form.has_marker ? "#" : "") +
         fmt::format(":{}:{}", int(form.reasoning_format), int(form.reasoning));
}

Element element_of(GrammarBuilder& builder, const api::OutputForm& form) {
  using Kind = api::OutputForm::Kind;
  switch (form.kind) {
    case Kind::json_object: return JsonText(builder).object();
    case Kind::json_schema: return json_schema_element(builder, form.text);
    case Kind::grammar: return gbnf_element(builder, form.text);
    case Kind::regex: return regex_element(builder, form.text);
    case Kind::tool_calls: return tool_calls_element(builder, form);
    default: break;
  }
  if (form.choices.empty()) throw UsageError("the list of choices is empty");
  return builder.one_of_texts(form.choices);
}

}  // namespace

Grammar grammar_of(const api::OutputForm& form) {
  GrammarBuilder builder;
  const RuleId root = builder.add_rule("root");
  // With a trigger it is that which waits for the end of the thoughts.
  const Sequence before = form.trigger.empty() ? reasoning_before(builder, form) : Sequence();
  builder.add_alternative(root, before + Sequence{element_of(builder, form)});
  return std::move(builder).finish(root);
}

ConstraintFactory::ConstraintFactory(const Tokenizer& tokenizer, int64_t vocab, std::vector<int32_t> end_tokens)
    : compiled_(kMostForms) {
  std::map<int32_t, std::string> control;
  const auto add = [&](std::string_view marker) {
    const std::optional<int32_t> id = tokenizer.find(marker);
    if (marker.empty() || !id) return;
    markers_.emplace_back(marker, *id);
    if (tokenizer.is_special(*id)) control.emplace(*id, fmt::format("{}{}", kControlByte, marker));
  };
  for (const api::ToolFamily& family : api::tool_families())
    for (const char* marker : family.markers) add(marker);
  for (const api::ReasoningFamily& family : api::reasoning_families())
    for (const char* mark : {family.open, family.close, family.behind}) add(mark);
  masks_ = std::make_shared<TokenMasks>(tokenizer, vocab, std::move(end_tokens), control);
}

std::unique_ptr<TokenConstraint> ConstraintFactory::make(const api::OutputForm& form) {
  if (!masks_->has_ends())
    throw UsageError("output of a given form is not offered: this model has no token that ends an answer");
  static std::atomic<uint64_t> count = 0;
  const std::string key = key_of(form);
  std::shared_ptr<const CompiledForm> compiled = compiled_.find(key);
  if (!compiled) {
    compiled = std::make_shared<const CompiledForm>(CompiledForm{form, grammar_of(form), ++count});
    check_start(*compiled, *masks_);
    if (key.size() <= kMostKey) compiled_.put(key, compiled);
  }
  if (form.trigger.empty()) return std::make_unique<GrammarConstraint>(compiled, masks_);
  const api::ToolFamily& family = api::tool_family(form.tool_format);
  const api::ReasoningFamily& thoughts = api::reasoning_family(form.reasoning_format);
  const auto token_of = [&](std::string_view spelling) {
    const auto marker = std::ranges::find(markers_, spelling, &std::pair<std::string, int32_t>::first);
    return marker == markers_.end() ? std::nullopt : std::optional(marker->second);
  };
  const MarkTokens tokens{.marker = token_of(form.is_whole_answer ? family.markers.front() : form.trigger),
                          .open = token_of(thoughts.open),
                          .close = token_of(thoughts.close)};
  const auto begin = [compiled, masks = masks_](std::string_view said) -> std::unique_ptr<TokenConstraint> {
    auto constraint = std::make_unique<GrammarConstraint>(compiled, masks);
    return constraint->begin_with(said) ? std::move(constraint) : nullptr;
  };
  return std::make_unique<TriggeredConstraint>(std::shared_ptr<const api::OutputForm>(compiled, &compiled->form),
                                               tokens, masks_, begin);
}

}  // namespace weft::constrain
