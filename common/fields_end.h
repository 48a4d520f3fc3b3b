/* fields_end.h - ends a fields file: its macros are undefined, unless it is one of those in common/families.h. */
#ifndef FAMILY
#undef FIELD
#undef RULE
#undef HAS
#endif
