/* fields_begin.h - begins a fields file: a macro that is not defined counts as empty. No include guard: once per file.
 */
#ifndef FIELD
#define FIELD(type, name, word, ...)
#endif
#ifndef RULE
#define RULE(name, holds, sentence)
#endif
#ifndef HAS
#define HAS(feature, holds)
#endif
