"""The source owner's side: learns a clustering model and answers with labels. Never imports ``target``."""
