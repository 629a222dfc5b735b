// Python's ideas of text, on UTF-8: white space, characters, case, printing of floats and strings.
#pragma once

#include <clocale>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton::model::jinja {

bool IsPythonSpace(char32_t code_point);

enum class Side { LEFT, RIGHT, BOTH };
// Without white space at its ends.
absl::string_view StripSpace(absl::string_view text, Side side);
// Without any of the characters `stripped` at its ends.
absl::string_view StripCharacters(absl::string_view text, absl::string_view stripped, Side side);

uint64_t CountCharacters(absl::string_view text);
// The characters [begin, end). REQUIRES: begin <= end <= CountCharacters(text).
absl::string_view SubstringOfCharacters(absl::string_view text, uint64_t begin, uint64_t end);

// The first occurrence at or after `from`, or npos. Linear time, unlike string_view::find().
size_t FindText(absl::string_view text, absl::string_view wanted, size_t from = 0);

// Gets pieces of a text, one by one; an error ends the walk and is returned.
using PieceVisitor = absl::FunctionRef<absl::Status(absl::string_view piece)>;

absl::Status VisitCharacters(absl::string_view text, PieceVisitor visit);

struct SplitOptions {
  int64_t splits_max = -1;  // Negative: no bound.
  bool from_right = false;  // Cuts, and visits, from the right.
};
// Pieces between runs of white space.
absl::Status SplitAtSpace(absl::string_view text, SplitOptions options, PieceVisitor visit);
// Pieces between separators. From the right it takes text × separator steps at worst. REQUIRES: the
// separator is not empty.
absl::Status SplitAt(absl::string_view text, absl::string_view separator, SplitOptions options,
                     PieceVisitor visit);
absl::Status SplitLines(absl::string_view text, bool keep_ends, PieceVisitor visit);

// Upper and lower case, character by character, for all of Unicode.
class CaseMapper {
 public:
  CaseMapper();
  ~CaseMapper();
  CaseMapper(const CaseMapper&) = delete;
  CaseMapper& operator=(const CaseMapper&) = delete;

  char32_t Upper(char32_t code_point) const;
  char32_t Lower(char32_t code_point) const;
  std::string Upper(absl::string_view text) const;
  std::string Lower(absl::string_view text) const;
  std::string Capitalize(absl::string_view text) const;   // First character upper, the rest lower.
  std::string TitleMethod(absl::string_view text) const;  // str.title(): words are runs of letters.
  std::string TitleFilter(
      absl::string_view text) const;           // Jinja's: words lie between spaces, -, (, {, [, <.
  bool IsUpper(absl::string_view text) const;  // str.isupper()
  bool IsLower(absl::string_view text) const;  // str.islower()
  bool IsCased(char32_t code_point) const { return Upper(code_point) != Lower(code_point); }

 private:
  locale_t locale_;
};

// repr() of a float: the shortest digits that read back the same.
std::string FloatToText(double value);
// repr() of a string: in quotes, with escapes.
std::string QuoteText(absl::string_view text);
// &, <, >, " and ' for HTML.
std::string EscapeHtml(absl::string_view text);

}  // namespace baton::model::jinja
