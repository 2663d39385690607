// Cuts text into sentences: `sentences en < text` writes one a line, and an empty line after each
// line of the input.
#include <iostream>
#include <string>

#include "heed/text/sentences.h"

int main(int argc, char** argv) {
  const std::string language = argc > 1 ? argv[1] : "";
  for (std::string line; std::getline(std::cin, line); std::cout << '\n')
    for (const heed::TextSpan& s : heed::split_sentences(line, language))
      std::cout << line.substr(s.begin, s.size()) << '\n';
}
