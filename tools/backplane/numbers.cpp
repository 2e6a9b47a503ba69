#include "tools/backplane/numbers.hpp"

#include <charconv>
#include <limits>
#include <string>
#include <system_error>

#include "tools/backplane/failure.hpp"

namespace backplane::cli {

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  return {[least, most](std::string& given) -> std::string {
            std::uint64_t value = 0;
            const char* const end = given.data() + given.size();
            const auto [stop, error] = std::from_chars(given.data(), end, value);
            if (stop != end || error != std::errc() || value < least || value > most)
              return text("'", given, "' is not a whole number from ", least, " to ", most);
            given = std::to_string(value);
            return "";
          },
          "NUMBER"};
}

CLI::Validator real_number(double least, double most) {
  return {[least, most](std::string& given) -> std::string {
            double value = 0;
            // Written this way round, a NaN is none.
            if (CLI::detail::lexical_cast(given, value) && value >= least && value <= most)
              return "";
            return most < std::numeric_limits<double>::max()
                       ? text("'", given, "' is not a number from ", least, " to ", most)
                       : text("'", given, "' is not a number from ", least, " on");
          },
          "NUMBER"};
}

}  // namespace backplane::cli
