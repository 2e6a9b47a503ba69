#include "plugins/cuda/precision.hpp"

#include <algorithm>
#include <fnmatch.h>

namespace backplane::cuda {

Precision precision_named(const std::string& name, const char* option) {
  for (const Precision precision :
       {Precision::kFp32, Precision::kTf32, Precision::kFp16, Precision::kBf16}) {
    if (name == precision_name(precision)) return precision;
  }
  sdk::invalid("option '", option, "' of provider 'cuda': '", name,
               "' is no precision; there are fp32, tf32, fp16 and bf16");
}

PrecisionRules::PrecisionRules(Precision otherwise, const std::string& rules)
    : otherwise_(otherwise) {
  for (std::size_t begin = 0; begin < rules.size();) {
    const std::size_t end = std::min(rules.find(',', begin), rules.size());
    const std::string text = rules.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0)
      sdk::invalid("option 'precision_of' of provider 'cuda': '", text,
                   "' is not PATTERN=PRECISION or op:TYPE=PRECISION");
    Rule rule{text.substr(0, equals), "", precision_named(text.substr(equals + 1), "precision_of")};
    if (rule.pattern.rfind("op:", 0) == 0) {
      rule.op_type = rule.pattern.substr(3);
      rule.pattern.clear();
    }
    rules_.push_back(std::move(rule));
  }
}

Precision PrecisionRules::of(const sdk::Node& node) const {
  std::string op_type(node.op_type());
  for (const std::string_view made : {"Fused", "Joined"}) {
    if (op_type.rfind(made, 0) == 0) op_type.erase(0, made.size());
  }
  const std::string name = node.get_string("origin", node.name());
  Precision precision = otherwise_;
  for (const Rule& rule : rules_) {
    const bool fits = rule.op_type.empty() ? ::fnmatch(rule.pattern.c_str(), name.c_str(), 0) == 0
                                           : rule.op_type == op_type;
    if (fits) precision = rule.precision;
  }
  return precision;
}

}  // namespace backplane::cuda
