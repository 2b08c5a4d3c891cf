// What tests of constrained output share: whether a form accepts a text.
#pragma once
#include "weft/serve/constrain/constraint_factory.h"
#include "weft/serve/constrain/matcher.h"

namespace weft::constrain {

using Form = api::OutputForm;
using FormKind = api::OutputForm::Kind;

inline bool accepts(const Grammar& grammar, std::string_view text) { return matches(grammar, text); }
inline bool accepts(const Form& form, std::string_view text) { return accepts(grammar_of(form), text); }

// What a form is refused with; empty when it is not.
inline std::string refusal(const Form& form) {
  try {
    grammar_of(form);
    return {};
  } catch (const UsageError& e) {
    return e.what();
  }
}

}  // namespace weft::constrain
