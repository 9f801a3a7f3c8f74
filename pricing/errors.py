"""Errors of the money: each is one sentence that says what was wrong, where, and what to do.

PricingError
├── BadMoney                an amount, a rate or a currency that is none       exit 2
│   └── CurrencyMismatch    two currencies met without a dated rate            exit 1
├── CatalogError            a price table that ships with the program is damaged  exit 1
├── LedgerError             the ledger cannot be used                          exit 1
│   ├── LedgerTooNew        a newer version wrote it
│   ├── LedgerLocked        another program writes to it
│   ├── LedgerDamaged       it is not a ledger, or no longer a whole one
│   └── LedgerFull          no space left on the device
├── PriceBookError          the kept prices (prices.db) cannot be used         exit 1
│   ├── PriceBookTooNew     a newer version wrote them
│   ├── PriceBookLocked     another program writes to them
│   ├── PriceBookDamaged    it is not a price book, or no longer a whole one
│   └── PriceBookFull       no space left on the device
├── PriceFileError          a file of prices cannot be read at all             exit 2
├── TermsError              terms.toml is wrong: names the file and the key    exit 2
├── ClosingError            a month that cannot be closed                      exit 2
├── HistoryError            a file of spot history that cannot be read         exit 2
├── TraceError              a published trace of a cluster cannot be read       exit 2
├── SpotJobError            a job under a deadline that is none, or traces that cannot judge it  exit 2
│   └── ImpossibleDeadline  even on demand it cannot be met: says the least time
├── SeriesError             a file of hourly demand that cannot be used        exit 2
├── UnknownPolicy           a rule of commitment that does not exist           exit 2
├── BadBudget               a budget that is none: whose, how much, thresholds exit 2
├── AdviceFileError         a file of usage, rates or a what-if cannot be read: names file, row, column  exit 2
├── WorkloadError           a workload that cannot be planned: names the file, the key and what to do  exit 2
├── BillError               a cloud's bill cannot be read or is not of this report: names file, row, column  exit 1
└── ReportError             a report that cannot be made as it was asked for   exit 2
    ├── BadRange            the dates are none, or end before they start
    └── BadGrouping         a grouping key that does not exist

Invariant: an unknown price is not an error; it is `None` with a reason.
"""

from __future__ import annotations


class PricingError(Exception):
    """The root; `str()` is a sentence for a person."""

    exit_code = 1


class BadMoney(PricingError, ValueError):
    """An amount, a rate or a currency that is none: says what was given and how to write it."""

    exit_code = 2


class CurrencyMismatch(BadMoney):
    """Amounts of two currencies were added or compared without a dated rate between them."""

    exit_code = 1


class CatalogError(PricingError):
    """A price table that ships with the program is damaged: names the file and the line."""


class LedgerError(PricingError):
    """The ledger cannot be used."""


class LedgerTooNew(LedgerError):
    """The ledger was written by a newer version than this one."""


class LedgerLocked(LedgerError):
    """Another program holds the ledger for writing."""


class LedgerDamaged(LedgerError):
    """The file is not a ledger, or no longer a whole one."""


class LedgerFull(LedgerError):
    """No space is left where the ledger is."""


class PriceBookError(PricingError):
    """The kept prices cannot be used; the prices that ship with the program still serve."""


class PriceBookTooNew(PriceBookError):
    """The price book was written by a newer version than this one."""


class PriceBookLocked(PriceBookError):
    """Another program holds the price book for writing."""


class PriceBookDamaged(PriceBookError):
    """The file is not a price book, or no longer a whole one."""


class PriceBookFull(PriceBookError):
    """No space is left where the price book is."""


class PriceFileError(PricingError):
    """A file of prices cannot be read as one: names the file, the row and the column; nothing of it was kept."""

    exit_code = 2


class TermsError(PricingError):
    """The terms (discounts, commitments, exchange rates, ...) are wrong: names the file, the key and what is allowed."""

    exit_code = 2


class ClosingError(PricingError):
    """A month cannot be closed: it has not ended, is closed already, or is none."""

    exit_code = 2


class HistoryError(PricingError):
    """A file of spot prices or availability cannot be read, or holds none: names the file."""

    exit_code = 2


class TraceError(PricingError):
    """A published trace of a cluster's usage cannot be read: names the file, the row and the column."""

    exit_code = 2


class SeriesError(PricingError):
    """A file of hourly demand cannot be used as it is: names the file, the line and the column."""

    exit_code = 2


class SpotJobError(PricingError, ValueError):
    """A job under a deadline with a wrong figure, or traces that cannot judge its policies: says which and what to do."""

    exit_code = 2


class ImpossibleDeadline(SpotJobError):
    """Even on demand, from the start, the work takes longer than the deadline: says the least time it takes."""


class UnknownPolicy(PricingError):
    """There is no rule of commitment of that name: names those that there are."""

    exit_code = 2


class BadBudget(PricingError, ValueError):
    """A budget that is none: names it and what is wrong with whose it is, its amount or its thresholds."""

    exit_code = 2


class AdviceFileError(PricingError):
    """A file of usage, rates or a what-if cannot be read as one: names the file, the row (or key) and the column."""

    exit_code = 2


class WorkloadError(PricingError):
    """A workload (or a what-if of one) that cannot be planned: names the file, the key and what to do.

    The file's own words are in it: what a terminal would obey is not.
    """

    exit_code = 2

    def __init__(self, sentence: str) -> None:
        super().__init__("".join(sign if sign.isprintable() else "?" for sign in sentence))


class BillError(PricingError):
    """A cloud's bill cannot be read, or is not the one to compare with: names the file, the row and the column."""


class ReportError(PricingError):
    """A report cannot be made as it was asked for."""

    exit_code = 2


class BadRange(ReportError):
    """The dates of a range are none, or the range ends before it starts."""


class BadGrouping(ReportError):
    """A grouping key does not exist: names it and those that do."""
