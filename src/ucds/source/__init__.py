"""The provider's side: learns a clustering model and answers with labels. Never imports ``target``."""
