// What a model is fed with: files that the command line names, and made-up values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backplane/backplane.hpp"

namespace backplane::cli {

/// "tensor(float) [batch,3,224,224]"
std::string describe(const ValueInfo& info);

/// Values by name, owned.
class FeedSet {
 public:
  /// Reads what `arguments` ("NAME=FILE") name, which may be inner values; whether all that a run needs is fed, the
  /// session says. Inputs of optional types hold nothing where none is named. Throws Failure (wrong request) for a
  /// repeated name or a bad file.
  FeedSet(const Session& session, const std::vector<std::string>& arguments);

  /// Fills the inputs that have no value yet, by name and index alone. A dimension that is not known takes the
  /// size that `sizes` or another feed gives its symbol, or 1; the last are named in the result ("batch").
  std::vector<std::string> fill_missing(const std::map<std::string, std::int64_t>& sizes = {});

  const std::vector<std::pair<std::string, Value>>& values() const { return values_; }
  Feeds views() const;
  /// The files that were read.
  const std::vector<std::string>& files() const { return files_; }

 private:
  bool has(const std::string& name) const;
  std::vector<std::int64_t> filled_dims(const ValueInfo& info,
                                        const std::map<std::string, std::int64_t>& sizes,
                                        std::vector<std::string>& assumed) const;

  std::vector<ValueInfo> inputs_;
  std::vector<std::pair<std::string, Value>> values_;
  std::vector<std::string> files_;
};

}  // namespace backplane::cli
